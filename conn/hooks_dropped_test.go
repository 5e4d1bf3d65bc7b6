package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// While a hook blocks, 1,024 events wait for it, in order. Those beyond are dropped and counted, in
// the next Transition and in samples. The Conn serves its peer and its program meanwhile.
//
// Guarantees: G-0024.4
func TestEventsBeyondThoseThatWaitAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waiting, beyond = 1024, 7
		release := make(chan struct{})
		var reported []int // the sizes of the params
		var dropped []uint64
		served := 0
		s := new(script)
		r := scripted(t, s, conn.Options{
			Handler: handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { served++; return nil, nil }},
			Tuning: conn.Tuning{
				Hooks: telemetry.Hooks{
					NotificationReceived: func(e telemetry.NotificationReceived) { <-release; reported = append(reported, e.Size) },
					Transition:           func(e telemetry.Transition) { dropped = append(dropped, e.Dropped) },
				},
			},
		})
		synctest.Wait()
		dropped = nil
		const all = 1 + waiting + beyond // the hook has the first
		var sizes []int
		for i := range all {
			params := fmt.Sprintf(`{"i":%d}`, 1<<(i%40))
			sizes = append(sizes, len(params))
			s.deliver(`{"jsonrpc":"2.0","method":"n","params":` + params + `}`)
			synctest.Wait()
		}
		if sample := r.Control().Sample().Conn; served != all || sample.Dropped != beyond {
			t.Errorf("%d notifications are served, want %d; a sample has %d dropped events, want %d", served, all, sample.Dropped, beyond)
		}
		close(release)
		synctest.Wait()
		if want := sizes[:1+waiting]; !slices.Equal(reported, want) {
			t.Errorf("%d notifications are reported, want the first %d in their order", len(reported), len(want))
		}
		r.Stop()
		<-r.ended
		synctest.Wait()
		if len(dropped) == 0 || slices.ContainsFunc(dropped, func(n uint64) bool { return n != beyond }) {
			t.Errorf("the transitions say that %v events were dropped, want %d", dropped, beyond)
		}
	})
}

// A panic of ServeStopped loses its event alone: the request is answered, its event counts as
// dropped, and the next request is reported.
//
// Guarantees: G-0024.1, G-0024.8
func TestPanicOfServeStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []string
		s := new(script)
		answers := func(context.Context, *conn.Incoming) (json.RawMessage, error) { return json.RawMessage(`{"a":1}`), nil }
		r := scripted(t, s, conn.Options{
			Handler: handler{"first": answers, "second": answers, "third": func(context.Context, *conn.Incoming) (json.RawMessage, error) { return nil, errors.New("no") }},
			Tuning: conn.Tuning{
				Hooks: telemetry.Hooks{
					ServeStopped: func(_ context.Context, e telemetry.ServeStopped) {
						if e.Method != "second" {
							panic("of the hook")
						}
						reported = append(reported, e.Method)
					},
				},
			},
		})
		for i, method := range []string{"first", "second", "third"} {
			s.deliver(string(jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(int64(i+1)), method, nil)))
			synctest.Wait()
		}
		frames := s.frames()
		for i, want := range []string{`"result":{"a":1}`, `"result":{"a":1}`, `"error":{`} {
			if len(frames) != 3 || !strings.Contains(frames[i], want) {
				t.Fatalf("sent are %q, want %s in answer %d of three", frames, want, i+1)
			}
		}
		if want := []string{"second"}; !slices.Equal(reported, want) {
			t.Errorf("reported are %q, want %q", reported, want)
		}
		if dropped := r.Control().Sample().Conn.Dropped; dropped != 2 {
			t.Errorf("%d events are counted as dropped, want the 2 for which the hook panicked", dropped)
		}
		r.Stop()
		<-r.ended
	})
}
