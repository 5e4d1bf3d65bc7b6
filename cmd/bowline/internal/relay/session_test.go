package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A walk plays a host and its gateways at random, and checks what the host sees.
type walk struct {
	t        *testing.T
	r        *rand.Rand
	s        *session
	next     int
	waiting  map[jsonrpc.ID]bool // requests of the host without an answer
	shown    map[jsonrpc.ID]bool // questions that the host sees
	asked    map[jsonrpc.ID]bool // by the gateway, without an answer
	received map[jsonrpc.ID]bool // requests that the gateway has, and has not answered
}

// toHost checks frames for the host: each request gets one answer, and each question another id.
func (w *walk) toHost(frames ...[]byte) {
	for _, frame := range frames {
		m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
		if err != nil {
			w.t.Fatalf("%s: %v", frame, err)
		}
		switch m.Kind {
		case jsonrpc.KindRequest:
			if w.shown[m.ID] {
				w.t.Fatalf("two questions have the id %s", m.ID)
			}
			w.shown[m.ID] = true
		case jsonrpc.KindNotification:
			if id, ok := idIn(m.Params); ok && m.Method == "notifications/cancelled" && !w.shown[id] {
				w.t.Fatalf("an unknown question ends: %s", frame)
			}
		default:
			if !w.waiting[m.ID] {
				w.t.Fatalf("an answer that nobody waits for: %s", frame)
			}
			delete(w.waiting, m.ID)
		}
	}
}

// toGateway checks frames for the gateway: an answer is one to its own question.
func (w *walk) toGateway(frames ...transport.Outbound) {
	for _, o := range frames {
		m, err := jsonrpc.Decode(o.Frame, jsonrpc.Limits{})
		switch {
		case err != nil:
			w.t.Fatalf("%s: %v", o.Frame, err)
		case m.Kind == jsonrpc.KindRequest && w.received[m.ID]:
			w.t.Fatalf("a request comes twice: %s", o.Frame)
		case m.Kind == jsonrpc.KindRequest:
			w.received[m.ID] = true
		case m.Kind != jsonrpc.KindNotification && !w.asked[m.ID]:
			w.t.Fatalf("an answer to another gateway: %s", o.Frame)
		default:
			delete(w.asked, m.ID)
		}
	}
}

// any returns one of the ids, and whether there is one.
func (w *walk) any(of map[jsonrpc.ID]bool) (id jsonrpc.ID, ok bool) {
	ids := slices.SortedFunc(maps.Keys(of), func(a, b jsonrpc.ID) int { return strings.Compare(a.String(), b.String()) })
	if len(ids) == 0 {
		return id, false
	}
	return ids[w.r.IntN(len(ids))], true
}

func (w *walk) step() {
	w.next++
	id := jsonrpc.IntegerID(int64(w.next))
	switch w.r.IntN(8) {
	case 0, 1, 2:
		method := []string{"tools/call", "tools/list", "resources/subscribe", "resources/unsubscribe", "logging/setLevel", "tasks/cancel"}[w.r.IntN(6)]
		w.waiting[id] = true
		w.toGateway(w.s.fromHost(jsonrpc.AppendRequest(nil, id, method, fmt.Appendf(nil, `{"uri":"a:%d","level":"info"}`, w.r.IntN(3))))...)
	case 3, 4:
		if id, ok := w.any(w.received); ok {
			delete(w.received, id)
			frame := jsonrpc.AppendResult(nil, id, []byte(`{}`))
			if w.r.IntN(4) == 0 {
				frame = jsonrpc.AppendError(nil, id, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "overloaded: shutting down"})
			}
			w.toHost(w.s.fromGateway(frame)...)
		}
	case 5:
		id := jsonrpc.IntegerID(int64(w.r.IntN(4)))
		if !w.asked[id] {
			w.asked[id] = true
			w.toHost(w.s.fromGateway(jsonrpc.AppendRequest(nil, id, "roots/list", nil))...)
		}
	case 6:
		if id, ok := w.any(w.shown); ok { // which another gateway may have asked
			w.toGateway(w.s.fromHost(jsonrpc.AppendResult(nil, id, []byte(`{}`)))...)
		}
	default:
		w.lose()
	}
}

// lose ends the gateway, and begins the session with another one, if one can be reached.
func (w *walk) lose() {
	w.toHost(w.s.lost(nil, "lost")...)
	clear(w.received)
	clear(w.asked)
	if w.r.IntN(3) == 0 {
		w.toHost(w.s.unreached("lost")...)
		if len(w.waiting) > 0 {
			w.t.Fatalf("%d requests have no answer", len(w.waiting))
		}
	}
	hello, err := jsonrpc.Decode(w.s.hello(), jsonrpc.Limits{})
	if err != nil {
		w.t.Fatal(err)
	}
	if is, err := w.s.greeted(jsonrpc.AppendResult(nil, hello.ID, []byte(agreement))); !is || err != nil {
		w.t.Fatal(is, err)
	}
	toGateway, toHost := w.s.resume()
	w.toHost(toHost...)
	w.toGateway(toGateway...)
}

// TestEachRequestHasOneAnswer plays many sessions at random.
//
// Guarantees: G-0092.3
func TestEachRequestHasOneAnswer(t *testing.T) {
	for seed := range uint64(300) {
		w := &walk{
			t: t, r: rand.New(rand.NewPCG(seed, 0)), s: newSession(),
			waiting: make(map[jsonrpc.ID]bool), shown: make(map[jsonrpc.ID]bool), asked: make(map[jsonrpc.ID]bool), received: make(map[jsonrpc.ID]bool),
		}
		w.s.fromHost([]byte(initialize))
		w.s.fromGateway([]byte(result("1", agreement)))
		w.s.fromHost([]byte(initialized))
		w.next = 1
		for range 200 {
			w.step()
		}
		w.toHost(append(w.s.lost(nil, "over"), w.s.unreached("over")...)...)
		if len(w.waiting)+len(w.s.calls)+len(w.s.questions)+len(w.s.repeated) > 0 {
			t.Fatalf("seed %d: %d requests have no answer, and %d, %d, %d are remembered", seed, len(w.waiting), len(w.s.calls), len(w.s.questions), len(w.s.repeated))
		}
	}
}
