package conn_test

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A countedRoom counts how often it was released.
type countedRoom struct{ atomic.Int32 }

func (r *countedRoom) Release() { r.Add(1) }

// A roomDialect has cancellations, and messages that the loop serves itself.
type roomDialect struct{ dialect }

func (roomDialect) Classify(m jsonrpc.Message) conn.Class {
	switch m.Method {
	case "cancel":
		var id int64
		_ = json.Unmarshal(m.Params, &[]any{&id})
		return conn.Class{Kind: conn.Cancellation, Request: jsonrpc.IntegerID(id)}
	case "now":
		return conn.Class{Immediate: true}
	}
	return dialect{}.Classify(m)
}

// A roomy Conn serves one request at a time. The handler of "holds" ignores its context until it is released.
type roomy struct {
	*script
	run
	release chan struct{}
}

func newRoomy(t *testing.T) *roomy {
	t.Helper()
	r := &roomy{script: new(script), release: make(chan struct{})}
	r.run = start(conn.Accept(r.script, conn.Options{
		Dialect: roomDialect{},
		Handler: handler{
			"echo": echo, "now": echo,
			"holds":  func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-r.release; return nil, nil },
			"panics": func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("no") },
			"exits":  func(context.Context, *conn.Incoming) (json.RawMessage, error) { runtime.Goexit(); return nil, nil },
		},
		Tuning: conn.Tuning{
			MaxServing: 1,
			MaxWaiting: 1,
		},
	}))
	synctest.Wait()
	return r
}

// deliver delivers a frame that has room.
func (r *roomy) deliver(frame string) *countedRoom {
	room := new(countedRoom)
	r.receiver.Receive(transport.Inbound{Frame: []byte(frame), Room: room})
	synctest.Wait()
	return room
}

func (r *countedRoom) want(t *testing.T, what string, n int32) {
	t.Helper()
	if got := r.Load(); got != n {
		t.Errorf("%s: the room was released %d times, want %d", what, got, n)
	}
}

const (
	holds    = `{"jsonrpc":"2.0","id":1,"method":"holds"}`
	waits    = `{"jsonrpc":"2.0","id":2,"method":"holds"}`
	holdsToo = `{"jsonrpc":"2.0","id":3,"method":"echo"}`
)

// The room of a frame is released once: at once if it brings no request for a handler or the request is refused, and
// otherwise when the handler has returned, however that ends.
//
// Guarantees: G-0083.11
func TestRoomIsReleasedOnce(t *testing.T) {
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"echo"}`,
		`{"jsonrpc":"2.0","id":1,"method":"now"}`,
		`{"jsonrpc":"2.0","id":1,"method":"panics"}`,
		`{"jsonrpc":"2.0","id":1,"method":"exits"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"unknown"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","method":"note"}`,
		`{"jsonrpc":"2.0","method":"cancel","params":[7]}`,
		`{"jsonrpc":"2.0","id":1,"method":7}`,
		`{`,
		`[]`,
		`[1]`,
		`[{"jsonrpc":"2.0","id":1,"method":"echo"},{"jsonrpc":"2.0","id":1,"method":"echo"},{"jsonrpc":"2.0","method":"note"},7]`,
	} {
		bubble(t, func(t *testing.T) {
			r := newRoomy(t)
			r.deliver(frame).want(t, frame, 1)
			r.Stop()
			<-r.ended
			r.deliver(frame).want(t, "after the end, "+frame, 1)
		})
	}
}

// A handler that ignores that its request was cancelled, or that its Conn is over, has the room of the request until it
// returns. What waits behind it has none any more.
//
// Guarantees: G-0083.11
func TestRoomFollowsTheHandler(t *testing.T) {
	for name, end := range map[string]func(*roomy){
		"answered":  func(*roomy) {},
		"cancelled": func(r *roomy) { r.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[1]}`) },
		"stuck":     func(r *roomy) { r.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[1]}`); advance(time.Hour) },
		"lost":      func(r *roomy) { r.lose(transport.Loss{Reason: io.EOF}); synctest.Wait() },
		"stopped":   func(r *roomy) { r.Stop(); advance(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRoomy(t)
				held, waiting, refused := r.deliver(holds), r.deliver(waits), r.deliver(holdsToo)
				refused.want(t, "refused", 1)
				waiting.want(t, "waiting", 0)
				r.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[2]}`)
				waiting.want(t, "cancelled while it waits", 1)
				waiting = r.deliver(waits)
				end(r)
				held.want(t, "its handler runs", 0)
				close(r.release)
				synctest.Wait()
				held.want(t, "its handler has returned", 1)
				r.Stop()
				<-r.ended
				waiting.want(t, "the request that waited", 1)
				held.want(t, "at the end", 1)
			})
		})
	}
}

// A batch has its room until the last of its handlers has returned.
//
// Guarantees: G-0083.11
func TestBatchHasRoomUntilItsLastHandlerReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRoomy(t)
		room := r.deliver("[" + holdsToo + "," + holds + "," + waits + `,{"jsonrpc":"2.0","id":4,"method":"echo"}]`)
		room.want(t, "one handler runs and one waits", 0)
		r.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[2]}`)
		r.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[1]}`)
		room.want(t, "all is cancelled, and a handler runs", 0)
		close(r.release)
		synctest.Wait()
		room.want(t, "no handler runs", 1)
		r.Stop()
		<-r.ended
		room.want(t, "at the end", 1)
	})
}
