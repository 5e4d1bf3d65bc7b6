package proptest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A record is what was seen of the calls of one Conn: by its callers, on both
// sides of the faults, and by its peer.
type record struct {
	ledger.Ledger // what its callers were told

	mu        sync.Mutex
	entries   map[string]*account // by params
	links     int
	executed  int // requests of callers'
	replies   int // delivered to the Conn
	malformed int // frames delivered to the Conn that were no message
	notified  int // notifications delivered to the Conn
	handled   int // of those, that its handler got
	wrong     []string
}

// An account is what was seen of one call.
type account struct {
	ledger.Call
	accepted int // by the link, from the Conn
	handed   int // on, by the faults
}

func newRecord() *record { return &record{entries: map[string]*account{}} }

func (l *record) note(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// of returns the account of a call, which nobody may have made.
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

// settle notes what a caller was told.
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

func (l outside) opened() (number int) {
	l.note(func() { l.links++; number = l.links })
	return number
}

func (l outside) sent(_ int, m *jsonrpc.Message) (undo func()) {
	return l.count(m, func(a *account) *int { return &a.accepted })
}

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

func (outside) notSent(int, ...transport.Tag) {}

// inside observes what passes between the faults and the transport.
type inside struct{ *record }

func (inside) opened() int { return 0 }

func (l inside) sent(_ int, m *jsonrpc.Message) (undo func()) {
	return l.count(m, func(a *account) *int { return &a.handed })
}

func (inside) received(*jsonrpc.Message, error) {}
func (inside) notSent(int, ...transport.Tag)    {}

// count counts a request of a caller's on its way.
func (l *record) count(m *jsonrpc.Message, of func(*account) *int) (undo func()) {
	if m.Kind != jsonrpc.KindRequest || m.Method != method {
		return func() {}
	}
	params := string(m.Params)
	l.note(func() { *of(l.of(params))++ })
	return func() { l.note(func() { *of(l.of(params))-- }) }
}

// executing is the peer's handler. One request in eight takes its time.
type executing struct {
	*record
	time time.Duration
}

func (l executing) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	slow := false
	if in.Method == method {
		l.note(func() {
			l.of(string(in.Params)).Executed++
			l.executed++
			slow = l.executed%8 == 0
		})
	}
	if slow {
		timer := time.NewTimer(l.time)
		<-timer.C
	}
	return EchoHandler().ServeRequest(ctx, in)
}

func (executing) ServeNotification(context.Context, *conn.Incoming) {}

// noticing is the Conn's handler.
type noticing struct{ *record }

func (noticing) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "nothing is served here"}
}

func (l noticing) ServeNotification(context.Context, *conn.Incoming) { l.note(func() { l.handled++ }) }
