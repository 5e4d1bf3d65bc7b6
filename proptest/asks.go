package proptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// askMethod is the method of the request that the peer makes while it serves a call.
const askMethod = "ask"

// An asking counts what happened to one request that the peer's handler has made.
type asking struct {
	served int  // how often the Conn's handler served it
	ended  int  // how often the peer's handler was told an outcome
	unsent bool // the peer's handler was told that the request was not sent
}

// ask sends a request from a handler to its caller, and checks the answer. Whatever
// the outcome, the handler answers the request that it is serving.
func (l executing) ask(ctx context.Context, in *conn.Incoming) {
	var params string
	a := new(asking)
	l.note(func() {
		params = fmt.Sprintf(`{"ask":%d}`, len(l.record.asks)+1)
		l.record.asks[params] = a
	})
	answer, err := in.Call(ctx, conn.Request{Method: askMethod, Params: json.RawMessage(params), Timeout: 16 * l.time})
	l.note(func() {
		a.ended++
		failed := new(conn.CallError)
		switch {
		case err == nil && string(answer) != params:
			l.blame("the peer asked %s, and got %s", params, answer)
		case err == nil && a.served == 0:
			l.blame("the peer was answered %s, which nobody has served", params)
		case err != nil && !errors.As(err, &failed):
			l.blame("what the peer asked ended with %T: %v", err, err)
		}
		a.unsent = err != nil && failed.Delivery == conn.NotSent
		l.askBooks.count(err)
	})
}

// answer serves a request that the peer's handler makes. One request in eight takes
// longer.
func (l noticing) answer(in *conn.Incoming) (json.RawMessage, error) {
	slow := false
	l.note(func() {
		a := l.asks[string(in.Params)]
		if a == nil {
			l.blame("the peer asked %s, and its handler did not", in.Params)
			return
		}
		a.served++
		l.answers++
		slow = l.answers%8 == 0
	})
	if slow {
		timer := time.NewTimer(l.time)
		<-timer.C
	}
	return in.Params, nil
}

// answeredAsks counts how many requests of the peer's handlers were made and answered.
type answeredAsks struct{ made, answered int }

func (n *answeredAsks) count(err error) {
	n.made++
	if err == nil {
		n.answered++
	}
}

// auditAsks checks that each of these requests ended once, and was served once, plus
// once for each time that a fault has repeated it.
func (s *soaked) auditAsks() {
	r, again := s.record, 0
	for params, a := range r.asks {
		switch {
		case a.ended > 1 || a.ended == 0 && !s.o.RealTime:
			r.blame("ask %s ended %d times", params, a.ended)
		case a.unsent && a.served > 0:
			r.blame("ask %s was not sent, and served", params)
		}
		again += max(a.served-1, 0)
	}
	if most := s.repeats(fault.Inbound); again > most {
		r.blame("%d asks were served again, and %d frames repeated by faults", again, most)
	}
}
