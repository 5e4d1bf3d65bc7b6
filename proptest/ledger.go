package proptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A ledger is what was seen of the calls of one Conn: by its callers, on both
// sides of the faults, and by its peer.
type ledger struct {
	mu        sync.Mutex
	entries   map[string]*account // by params
	links     int
	executed  int // requests of callers'
	replies   int // delivered to the Conn
	malformed int // frames delivered to the Conn that were no message
	told      int // notifications delivered to the Conn
	heard     int // of those, that its handler got
	wrong     []string
}

// An account is what was seen of one call.
type account struct {
	accepted int // by the link, from the Conn
	handed   int // on, by the faults
	executed int // by the peer
	ended    int // for its caller
	cause    conn.Cause
	delivery conn.Delivery
}

func newLedger() *ledger { return &ledger{entries: map[string]*account{}} }

func (l *ledger) note(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// of returns the account of a call, which nobody may have made.
func (l *ledger) of(params string) *account {
	a := l.entries[params]
	if a == nil {
		a = new(account)
		l.entries[params] = a
		l.blame("%s was not called, and seen", params)
	}
	return a
}

func (l *ledger) blame(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *ledger) make(params string) { l.note(func() { l.entries[params] = new(account) }) }

// settle notes what a caller was told.
func (l *ledger) settle(params, result string, err error) {
	l.note(func() {
		a := l.of(params)
		a.ended++
		var failed *conn.CallError
		switch {
		case err == nil:
			a.cause, a.delivery = conn.Answered, conn.Sent
			if result != params {
				l.blame("call %s got %s", params, result)
			}
		case errors.As(err, &failed):
			a.cause, a.delivery = failed.Cause, failed.Delivery
		default:
			l.blame("call %s ended with %T: %v", params, err, err)
		}
	})
}

// outside observes what passes between the Conn and the faults.
type outside struct{ *ledger }

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
			l.told++
		}
	})
}

func (outside) notSent(int, ...transport.Tag) {}

// inside observes what passes between the faults and the transport.
type inside struct{ *ledger }

func (inside) opened() int { return 0 }

func (l inside) sent(_ int, m *jsonrpc.Message) (undo func()) {
	return l.count(m, func(a *account) *int { return &a.handed })
}

func (inside) received(*jsonrpc.Message, error) {}
func (inside) notSent(int, ...transport.Tag)    {}

// count counts a request of a caller's on its way.
func (l *ledger) count(m *jsonrpc.Message, of func(*account) *int) (undo func()) {
	if m.Kind != jsonrpc.KindRequest || m.Method != method {
		return func() {}
	}
	params := string(m.Params)
	l.note(func() { *of(l.of(params))++ })
	return func() { l.note(func() { *of(l.of(params))-- }) }
}

// executing is the peer's handler. One request in eight takes its time.
type executing struct {
	*ledger
	time time.Duration
}

func (l executing) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	slow := false
	if in.Method == method {
		l.note(func() {
			l.of(string(in.Params)).executed++
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
type noticing struct{ *ledger }

func (noticing) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "nothing is served here"}
}

func (l noticing) ServeNotification(context.Context, *conn.Incoming) { l.note(func() { l.heard++ }) }
