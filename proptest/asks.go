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

// askCounts counts what happened to one request that the peer's handler has made.
type askCounts struct {
	served   int  // how often the Conn's handler served it
	reported int  // how often the call of the peer's handler returned
	unsent   bool // the call of the peer's handler returned that the request was not sent
}

// ask sends a request from a handler to its caller, and checks the answer. Whatever
// the outcome, the handler answers the request that it is serving.
func (l peerHandler) ask(ctx context.Context, in *conn.Incoming) {
	var params string
	a := new(askCounts)
	l.locked(func() {
		params = fmt.Sprintf(`{"ask":%d}`, len(l.record.asks)+1)
		l.record.asks[params] = a
	})
	answer, err := in.Call(ctx, conn.Request{Method: askMethod, Params: json.RawMessage(params), Timeout: 16 * l.delay})
	l.locked(func() {
		a.reported++
		failed := new(conn.CallError)
		switch {
		case err == nil && string(answer) != params:
			l.violation("the peer sent ask %s, and got %s", params, answer)
		case err == nil && a.served == 0:
			l.violation("the peer got an answer to ask %s, which no handler has served", params)
		case err != nil && !errors.As(err, &failed):
			l.violation("an ask of the peer ended with %T: %v", err, err)
		}
		a.unsent = err != nil && failed.Delivery == conn.NotSent
		l.askTotals.count(err)
	})
}

// answer serves a request that the peer's handler makes. One request in eight takes
// longer.
func (l connHandler) answer(in *conn.Incoming) (json.RawMessage, error) {
	slow := false
	l.locked(func() {
		a := l.asks[string(in.Params)]
		if a == nil {
			l.violation("ask %s arrived, and no handler of the peer has sent it", in.Params)
			return
		}
		a.served++
		l.answers++
		slow = l.answers%8 == 0
	})
	if slow {
		timer := time.NewTimer(l.delay)
		<-timer.C
	}
	return in.Params, nil
}

// askTotal counts how many requests of the peer's handlers were made and answered.
type askTotal struct{ made, answered int }

func (n *askTotal) count(err error) {
	n.made++
	if err == nil {
		n.answered++
	}
}

// auditAsks checks that each of these requests ended once, and was served once, plus
// once for each time that a fault has repeated it.
func (s *soakConn) auditAsks() {
	r, repeated := s.record, 0
	for params, a := range r.asks {
		switch {
		case a.reported > 1 || a.reported == 0 && !s.o.RealTime:
			r.violation("ask %s ended %d times", params, a.reported)
		case a.unsent && a.served > 0:
			r.violation("ask %s was reported as not sent, and was served", params)
		}
		repeated += max(a.served-1, 0)
	}
	if most := s.repeats(fault.Inbound); repeated > most {
		r.violation("%d asks were served again, and %d frames repeated by faults", repeated, most)
	}
}
