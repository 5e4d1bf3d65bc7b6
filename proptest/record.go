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

	mu         sync.Mutex
	calls      map[string]*callCounts // by the params of the call
	exchanges  map[int64]*exchange    // by the id of the request
	links      int
	executed   int                   // how many requests of callers were executed
	replies    int                   // how many replies were delivered to the Conn
	malformed  int                   // how many invalid frames were delivered to the Conn
	notified   int                   // how many notifications were delivered to the Conn
	handled    int                   // how many of these its handler received
	asks       map[string]*askCounts // by the params of the call
	answers    int                   // how many answers the Conn's handler gave
	askTotals  askTotal
	violations []string
}

// callCounts counts what happened to one call.
type callCounts struct {
	ledger.Call
	accepted  int // how often the link accepted it from the Conn
	forwarded int // how often the faults forwarded it
}

// An exchange is what was seen of one id between the faults and the transport. A
// peer that serves a request refuses another with its id, so that a request that
// was sent twice is not always executed twice; but it is always answered twice.
type exchange struct {
	forwarded int // requests with this id, whatever else faults have made of them
	answered  int
}

func newRecord() *record {
	return &record{calls: map[string]*callCounts{}, exchanges: map[int64]*exchange{}, asks: map[string]*askCounts{}}
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

func (l *record) locked(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// callOf returns the counts of the call with these params. It creates one if there is
// none, even if nobody has made the call.
func (l *record) callOf(params string) *callCounts {
	a := l.calls[params]
	if a == nil {
		a = new(callCounts)
		l.calls[params] = a
		l.violation("a request with %s arrived, and no caller has made it", params)
	}
	return a
}

func (l *record) violation(format string, args ...any) {
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

func (l *record) begin(params string) { l.locked(func() { l.calls[params] = new(callCounts) }) }

// settle records the outcome that a caller got.
func (l *record) settle(params, result string, err error) {
	l.locked(func() {
		a := l.callOf(params)
		a.Reported++
		a.Outcome = l.Report(err)
		if err == nil && result != params {
			l.violation("call %s got %s", params, result)
		}
	})
}

// outerObserver observes what passes between the Conn and the faults.
type outerObserver struct{ *record }

func (l outerObserver) opened() { l.locked(func() { l.links++ }) }

func (l outerObserver) sent(_ int, m *jsonrpc.Message)    { l.count(m, 1, accepted) }
func (l outerObserver) refused(_ int, m *jsonrpc.Message) { l.count(m, -1, accepted) }

func accepted(a *callCounts) *int { return &a.accepted }

func (l outerObserver) received(m *jsonrpc.Message, err error) {
	l.locked(func() {
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

func (outerObserver) invalid(jsonrpc.ID)            {}
func (outerObserver) notSent(int, ...transport.Tag) {}

// innerObserver observes what passes between the faults and the transport.
type innerObserver struct{ *record }

func (innerObserver) opened() {}

func (l innerObserver) sent(_ int, m *jsonrpc.Message) {
	l.count(m, 1, forwarded)
	l.countRequest(m, 1)
}

func (l innerObserver) refused(_ int, m *jsonrpc.Message) {
	l.count(m, -1, forwarded)
	l.countRequest(m, -1)
}

func forwarded(a *callCounts) *int { return &a.forwarded }

// countRequest counts any request, even one that no caller has made.
func (l innerObserver) countRequest(m *jsonrpc.Message, by int) {
	if m.Kind == jsonrpc.KindRequest {
		l.locked(func() { l.exchange(m.ID).forwarded += by })
	}
}

// invalid counts a request that a fault has corrupted. The peer refuses it by its id.
func (l innerObserver) invalid(id jsonrpc.ID) { l.locked(func() { l.exchange(id).forwarded++ }) }

func (l innerObserver) received(m *jsonrpc.Message, err error) {
	if err == nil && (m.Kind == jsonrpc.KindResult || m.Kind == jsonrpc.KindError) && m.ID != (jsonrpc.ID{}) {
		l.locked(func() { l.exchange(m.ID).answered++ })
	}
}

func (innerObserver) notSent(int, ...transport.Tag) {}

// count counts a request of a caller while it is passed on.
func (l *record) count(m *jsonrpc.Message, by int, of func(*callCounts) *int) {
	if m.Kind == jsonrpc.KindRequest && m.Method == method {
		l.locked(func() { *of(l.callOf(string(m.Params))) += by })
	}
}

// peerHandler is the peer's handler. One request in eight takes longer. With
// Options.Asks, one in four makes a request to its caller.
type peerHandler struct {
	*record
	delay     time.Duration
	sendsAsks bool
}

func (l peerHandler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	slow, asks := false, false
	if in.Method == method {
		l.locked(func() {
			l.callOf(string(in.Params)).Executed++
			l.executed++
			slow, asks = l.executed%8 == 0, l.sendsAsks && l.executed%4 == 1
		})
	}
	if slow {
		timer := time.NewTimer(l.delay)
		<-timer.C
	}
	if asks {
		l.ask(ctx, in)
	}
	return EchoHandler().ServeRequest(ctx, in)
}

func (peerHandler) ServeNotification(context.Context, *conn.Incoming) {}

// connHandler is the Conn's handler.
type connHandler struct {
	*record
	delay time.Duration
}

func (l connHandler) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == askMethod {
		return l.answer(in)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "nothing is served here"}
}

func (l connHandler) ServeNotification(context.Context, *conn.Incoming) {
	l.locked(func() { l.handled++ })
}

// audit returns the violations of a Conn whose calls have ended.
func (s *soakConn) audit() []string {
	r, final := s.record, s.conn.Stats()
	balance := r.Balance(final)
	r.mu.Lock()
	defer r.mu.Unlock()
	if balance != nil {
		r.violation("%v", balance)
	}
	repeated := 0
	for params, a := range r.calls {
		repeated += max(a.forwarded-a.accepted, 0)
		if wrong := a.audit(s.o.allows(fault.Duplicate)); wrong != "" {
			r.violation("call %s: %s: %+v", params, wrong, *a)
		}
	}
	if most := s.repeats(fault.Outbound); repeated > most {
		r.violation("%d requests were repeated, and only %d by faults", repeated, most)
	}
	s.auditAsks()
	r.auditExchanges()
	r.auditFrames(s.idleStats, !s.o.RealTime)
	checkNothingKept(final, r.violation)
	return r.violations
}

// audit returns a violation of one call, or "".
func (a *callCounts) audit(mayRepeat bool) string {
	switch wrong := a.Contradiction(a.forwarded); {
	case wrong != "":
		return wrong
	case a.accepted > 1:
		return fmt.Sprintf("the Conn sent it %d times", a.accepted)
	case a.forwarded > a.accepted && !mayRepeat:
		return "it was forwarded more often than it was sent"
	default:
		return ""
	}
}

// repeats returns how many frames of a direction were repeated by faults.
func (s *soakConn) repeats(d fault.Direction) (n int) {
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
		if e.answered > e.forwarded {
			l.violation("request %d was sent %d times, and answered %d times", id, e.forwarded, e.answered)
		}
	}
}

// auditFrames checks that an idle Conn has counted everything that was
// delivered.
func (l *record) auditFrames(stats conn.Stats, idle bool) {
	answers := stats.Settled[conn.Answered][conn.Sent] + stats.Settled[conn.PeerError][conn.Sent] + stats.Late + stats.Unknown
	for _, c := range []struct {
		what          string
		seen, counted uint64
	}{
		{"answers", uint64(l.replies), answers},
		{"malformed frames", uint64(l.malformed), stats.Malformed},
		{"notifications", uint64(l.notified), uint64(l.handled) + stats.Shed},
	} {
		if c.counted > c.seen || idle && c.counted < c.seen {
			l.violation("%d %s were delivered, and %d are counted", c.seen, c.what, c.counted)
		}
	}
}

// totals are the counts of all rounds of a soak.
type totals struct {
	made       int
	duration   time.Duration
	outcomes   ledger.Counts
	executed   int // how many requests the peers executed
	twice      int // how many of these were executed more than once
	reconnects int
	asks       askTotal
	stats      conn.Stats // the counts of frames
	faults     map[fault.Kind]int
}

func newTotals() *totals { return &totals{outcomes: ledger.Counts{}, faults: map[fault.Kind]int{}} }

func (t *totals) add(s *soakConn) {
	t.outcomes.Add(s.record.Reported())
	s.record.locked(func() { // a handler of the peer may still run
		t.made += len(s.record.calls)
		for _, a := range s.record.calls {
			t.executed += min(a.Executed, 1)
			t.twice += max(a.Executed-1, 0)
		}
		t.asks.made += s.record.askTotals.made
		t.asks.answered += s.record.askTotals.answered
		t.reconnects += max(s.record.links-1, 0)
	})
	t.stats.Late += s.idleStats.Late
	t.stats.Unknown += s.idleStats.Unknown
	t.stats.Malformed += s.idleStats.Malformed
	t.stats.Shed += s.idleStats.Shed
	for _, e := range s.faults.Log() {
		t.faults[e.Kind]++
	}
}

func (t *totals) answered() uint64 { return t.outcomes[ledger.Answered()] }

// String is a table of calls by cause and delivery, and the counts.
func (t *totals) String() string {
	var text strings.Builder
	text.WriteString(t.outcomes.String())
	fmt.Fprintf(&text, "%d calls, of which the peers have executed %d, and %d again\n", t.made, t.executed, t.twice)
	fmt.Fprintf(&text, "answers: %d late, %d unknown; frames: %d malformed, %d shed; reconnects: %d\n",
		t.stats.Late, t.stats.Unknown, t.stats.Malformed, t.stats.Shed, t.reconnects)
	if t.asks.made > 0 {
		fmt.Fprintf(&text, "the peers sent %d asks, and %d of them were answered\n", t.asks.made, t.asks.answered)
	}
	fmt.Fprint(&text, "faults:")
	for _, kind := range slices.Sorted(maps.Keys(t.faults)) {
		fmt.Fprintf(&text, " %d %s,", t.faults[kind], kind)
	}
	fmt.Fprintf(&text, "\nin %v, %.0f calls a second\n", t.duration.Round(time.Millisecond), float64(t.made)/t.duration.Seconds())
	return text.String()
}
