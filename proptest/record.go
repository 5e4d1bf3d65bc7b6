package proptest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A record counts what happened to the calls of one Conn, as seen by its
// callers, on both sides of the faults, and by its peer.
type record struct {
	ledger.Ledger // the outcomes that the callers got

	mu        sync.Mutex
	entries   map[string]*account // by the params of the call
	exchanges map[int64]*exchange // by the id of the request
	links     int
	executed  int                // how many requests of callers were executed
	replies   int                // how many replies were delivered to the Conn
	malformed int                // how many invalid frames were delivered to the Conn
	notified  int                // how many notifications were delivered to the Conn
	handled   int                // how many of these its handler got
	asks      map[string]*asking // by the params of the call
	answers   int                // how many answers the Conn's handler gave
	askBooks  answeredAsks
	wrong     []string
}

// An account counts what happened to one call.
type account struct {
	ledger.Call
	accepted int // how often the link accepted it from the Conn
	handed   int // how often the faults passed it on
}

// An exchange is what was seen of one id between the faults and the transport. A
// peer that serves a request refuses another with its id, so that a request that
// was sent twice is not always executed twice; but it is always answered twice.
type exchange struct {
	handed   int // requests with this id, whatever else faults have made of them
	answered int
}

func newRecord() *record {
	return &record{entries: map[string]*account{}, exchanges: map[int64]*exchange{}, asks: map[string]*asking{}}
}

// exchange returns what was seen of an id. The caller holds mu.
func (l *record) exchange(id jsonrpc.ID) *exchange {
	n, _ := id.Int64() // zero, if a fault made it a string: then they share an exchange
	e := l.exchanges[n]
	if e == nil {
		e = new(exchange)
		l.exchanges[n] = e
	}
	return e
}

func (l *record) note(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// of returns the account of the call with these params. It creates one if there is
// none, even if nobody has made the call.
func (l *record) of(params string) *account {
	a := l.entries[params]
	if a == nil {
		a = new(account)
		l.entries[params] = a
		l.blame("%s was not called, and seen", params)
	}
	return a
}

func (l *record) blame(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *record) make(params string) { l.note(func() { l.entries[params] = new(account) }) }

// settle records the outcome that a caller got.
func (l *record) settle(params, result string, err error) {
	l.note(func() {
		a := l.of(params)
		a.Told++
		a.Outcome = l.Tell(err)
		if err == nil && result != params {
			l.blame("call %s got %s", params, result)
		}
	})
}

// outside observes what passes between the Conn and the faults.
type outside struct{ *record }

func (l outside) opened() { l.note(func() { l.links++ }) }

func (l outside) sent(_ int, m *jsonrpc.Message)    { l.count(m, 1, accepted) }
func (l outside) refused(_ int, m *jsonrpc.Message) { l.count(m, -1, accepted) }

func accepted(a *account) *int { return &a.accepted }

func (l outside) received(m *jsonrpc.Message, err error) {
	l.note(func() {
		switch {
		case err != nil:
			l.malformed++
		case m.Kind == jsonrpc.KindResult || m.Kind == jsonrpc.KindError:
			l.replies++
		case m.Kind == jsonrpc.KindNotification:
			l.notified++
		}
	})
}

func (outside) spoiled(jsonrpc.ID)            {}
func (outside) notSent(int, ...transport.Tag) {}

// inside observes what passes between the faults and the transport.
type inside struct{ *record }

func (inside) opened() {}

func (l inside) sent(_ int, m *jsonrpc.Message) {
	l.count(m, 1, handed)
	l.ask(m, 1)
}

func (l inside) refused(_ int, m *jsonrpc.Message) {
	l.count(m, -1, handed)
	l.ask(m, -1)
}

func handed(a *account) *int { return &a.handed }

// ask counts any request, even one that no caller has made.
func (l inside) ask(m *jsonrpc.Message, by int) {
	if m.Kind == jsonrpc.KindRequest {
		l.note(func() { l.exchange(m.ID).handed += by })
	}
}

// spoiled counts a request that a fault has corrupted. The peer refuses it by its id.
func (l inside) spoiled(id jsonrpc.ID) { l.note(func() { l.exchange(id).handed++ }) }

func (l inside) received(m *jsonrpc.Message, err error) {
	if err == nil && (m.Kind == jsonrpc.KindResult || m.Kind == jsonrpc.KindError) && m.ID != (jsonrpc.ID{}) {
		l.note(func() { l.exchange(m.ID).answered++ })
	}
}

func (inside) notSent(int, ...transport.Tag) {}

// count counts a request of a caller while it is passed on.
func (l *record) count(m *jsonrpc.Message, by int, of func(*account) *int) {
	if m.Kind == jsonrpc.KindRequest && m.Method == method {
		l.note(func() { *of(l.of(string(m.Params))) += by })
	}
}

// executing is the peer's handler. One request in eight takes longer. With
// Options.Asks, one in four makes a request to its caller.
type executing struct {
	*record
	time time.Duration
	asks bool
}

func (l executing) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	slow, asks := false, false
	if in.Method == method {
		l.note(func() {
			l.of(string(in.Params)).Executed++
			l.executed++
			slow, asks = l.executed%8 == 0, l.asks && l.executed%4 == 1
		})
	}
	if slow {
		timer := time.NewTimer(l.time)
		<-timer.C
	}
	if asks {
		l.ask(ctx, in)
	}
	return EchoHandler().ServeRequest(ctx, in)
}

func (executing) ServeNotification(context.Context, *conn.Incoming) {}

// noticing is the Conn's handler.
type noticing struct {
	*record
	time time.Duration
}

func (l noticing) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == askMethod {
		return l.answer(in)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "nothing is served here"}
}

func (l noticing) ServeNotification(context.Context, *conn.Incoming) { l.note(func() { l.handled++ }) }

// audit returns the violations of a Conn whose calls have ended.
func (s *soaked) audit() []string {
	r, final := s.record, s.conn.Stats()
	balance := r.Balance(final)
	r.mu.Lock()
	defer r.mu.Unlock()
	if balance != nil {
		r.blame("%v", balance)
	}
	repeated := 0
	for params, a := range r.entries {
		repeated += max(a.handed-a.accepted, 0)
		if wrong := a.audit(s.o.allows(fault.Duplicate)); wrong != "" {
			r.blame("call %s: %s: %+v", params, wrong, *a)
		}
	}
	if most := s.repeats(fault.Outbound); repeated > most {
		r.blame("%d requests were repeated, and %d by faults", repeated, most)
	}
	s.auditAsks()
	r.auditExchanges()
	r.auditFrames(s.atRest, !s.o.RealTime)
	nothingKept(final, r.blame)
	return r.wrong
}

// audit returns a violation of one call, or "".
func (a *account) audit(mayRepeat bool) string {
	switch wrong := a.Contradiction(a.handed); {
	case wrong != "":
		return wrong
	case a.accepted > 1:
		return fmt.Sprintf("the Conn sent it %d times", a.accepted)
	case a.handed > a.accepted && !mayRepeat:
		return "it was handed on more often than it was sent"
	default:
		return ""
	}
}

// repeats returns how many frames of a direction were repeated by faults.
func (s *soaked) repeats(d fault.Direction) (n int) {
	for _, e := range s.faults.Log() {
		if e.Kind == fault.Duplicate && e.Direction == d {
			n++
		}
	}
	return n
}

// auditExchanges checks that no request was answered more often than it was sent.
func (l *record) auditExchanges() {
	for id, e := range l.exchanges {
		if e.answered > e.handed {
			l.blame("request %d was sent %d times, and answered %d times", id, e.handed, e.answered)
		}
	}
}

// auditFrames checks that an idle Conn has counted everything that was
// delivered.
func (l *record) auditFrames(stats conn.Stats, rested bool) {
	answers := stats.Settled[conn.Answered][conn.Sent] + stats.Settled[conn.PeerError][conn.Sent] + stats.Late + stats.Unknown
	for _, c := range []struct {
		what            string
		seen, inTheBook uint64
	}{
		{"answers", uint64(l.replies), answers},
		{"malformed frames", uint64(l.malformed), stats.Malformed},
		{"notifications", uint64(l.notified), uint64(l.handled) + stats.Shed},
	} {
		if c.inTheBook > c.seen || rested && c.inTheBook < c.seen {
			l.blame("%d %s were delivered, and %d are counted", c.seen, c.what, c.inTheBook)
		}
	}
}

// books are the totals of all rounds of a soak.
type books struct {
	made       int
	took       time.Duration
	told       ledger.Counts
	executed   int // how many requests the peers executed
	twice      int // how many of these were executed more than once
	reconnects int
	asks       answeredAsks
	stats      conn.Stats // the counts of frames
	faults     map[fault.Kind]int
}

func newBooks() *books { return &books{told: ledger.Counts{}, faults: map[fault.Kind]int{}} }

func (b *books) add(s *soaked) {
	b.made += len(s.record.entries)
	b.told.Add(s.record.Told())
	for _, a := range s.record.entries {
		b.executed += min(a.Executed, 1)
		b.twice += max(a.Executed-1, 0)
	}
	b.asks.made += s.record.askBooks.made
	b.asks.answered += s.record.askBooks.answered
	b.reconnects += max(s.record.links-1, 0)
	b.stats.Late += s.atRest.Late
	b.stats.Unknown += s.atRest.Unknown
	b.stats.Malformed += s.atRest.Malformed
	b.stats.Shed += s.atRest.Shed
	for _, e := range s.faults.Log() {
		b.faults[e.Kind]++
	}
}

func (b *books) answered() uint64 { return b.told[ledger.Answered()] }

// String is a table of calls by cause and delivery, and the counts.
func (b *books) String() string {
	var text strings.Builder
	text.WriteString(b.told.String())
	fmt.Fprintf(&text, "%d calls, of which the peers have executed %d, and %d again\n", b.made, b.executed, b.twice)
	fmt.Fprintf(&text, "answers: %d late, %d unknown; frames: %d malformed, %d shed; reconnects: %d\n",
		b.stats.Late, b.stats.Unknown, b.stats.Malformed, b.stats.Shed, b.reconnects)
	if b.asks.made > 0 {
		fmt.Fprintf(&text, "%d were asked back, and %d of them answered\n", b.asks.made, b.asks.answered)
	}
	fmt.Fprint(&text, "faults:")
	for _, kind := range slices.Sorted(maps.Keys(b.faults)) {
		fmt.Fprintf(&text, " %d %s,", b.faults[kind], kind)
	}
	fmt.Fprintf(&text, "\nin %v, %.0f calls a second\n", b.took.Round(time.Millisecond), float64(b.made)/b.took.Seconds())
	return text.String()
}
