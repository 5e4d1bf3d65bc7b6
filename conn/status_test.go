package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// In a cancelling dialect, a "cancel" notification of the peer names the request that it cancels.
type cancelling struct{ dialect }

func (cancelling) Classify(m jsonrpc.Message) conn.Class {
	var id int64
	if m.Method == "cancel" && json.Unmarshal(m.Params, &[]any{&id}) == nil {
		return conn.Class{Kind: conn.Cancellation, Request: jsonrpc.IntegerID(id)}
	}
	return conn.Class{}
}

// A slow handler blocks until its channel is closed.
type slow struct{ until chan struct{} }

func (s slow) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	<-s.until
	return nil, nil
}

func (s slow) ServeNotification(context.Context, *conn.Incoming) { <-s.until }

// A full is a Conn of which each depth can be made another number.
type full struct {
	run
	link         *script
	busy, panics bool          // the link refuses every frame, or panics
	release      chan struct{} // closed to let the handlers return
}

func fill(t *testing.T) *full {
	f := &full{link: &script{}, release: make(chan struct{})}
	f.link.onSend = func(*script, transport.Outbound) error {
		switch {
		case f.panics:
			panic("the link")
		case f.busy:
			return transport.ErrBusy
		default:
			return nil
		}
	}
	f.run = scripted(t, f.link, conn.Options{Dialect: cancelling{}, Handler: slow{f.release}, Tuning: conn.Tuning{Liveness: time.Second, MaxServing: 2}})
	return f
}

// receive lets several frames of the peer come in, numbered from 1.
func (f *full) receive(frames int, format string) {
	for n := range frames {
		f.link.deliver(fmt.Sprintf(format, n+1))
	}
	synctest.Wait()
}

// call makes several calls.
func (f *full) call(ctx context.Context, calls int) {
	for range calls {
		f.calling(ctx, conn.Request{Method: "m"})
	}
}

// everything gives each depth a different value.
func (f *full) everything(t *testing.T) {
	for n := range 6 {
		f.link.receiver.StreamOpened(transport.Stream(n+1), 0)
	}
	f.receive(2+5, `{"jsonrpc":"2.0","id":%d,"method":"serve"}`)
	f.receive(1, `{"jsonrpc":"2.0","method":"cancel","params":[%d]}`) // its handler still runs
	f.receive(1+7, `{"jsonrpc":"2.0","method":"n","params":[%d]}`)    // the handler has one of them
	leaving, leave := context.WithCancel(t.Context())
	f.call(leaving, 3)
	leave()
	f.call(t.Context(), 4)
	f.busy = true
	f.call(t.Context(), 8)
}

// While a Conn runs, Stats has its depths. After its end they are zero, even after a panic.
func TestDepths(t *testing.T) {
	for name, end := range map[string]func(*full){
		"stopped":  func(f *full) { f.Stop() },
		"panicked": func(f *full) { f.panics = true; f.link.receiver.Writable() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := fill(t)
				advance(1500 * time.Millisecond)
				if len(f.link.frames()) != 1 {
					t.Fatalf("the peer got %q, want one probe", f.link.frames())
				}
				f.wantDepths(t, conn.Depths{}) // a probe does not count as a call
				f.everything(t)
				f.wantDepths(t, conn.Depths{
					Pending: 4 + 8, Tombstones: 3, Queued: 8, Serving: 2, Waiting: 5, Streams: 6, Notifications: 7,
				})
				end(f)
				<-f.ended
				f.wantDepths(t, conn.Depths{})
				close(f.release)
			})
		})
	}
}

func (f *full) wantDepths(t *testing.T, want conn.Depths) {
	t.Helper()
	if got := f.Stats().Depths; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The channel of Status.Changed is closed if there is a newer Status, whether the caller got the channel
// before the change or after it. The last Status and the zero Status never change.
func TestChangedOfAnOldStatus(t *testing.T) {
	client := serveInMemoryWith(t, runAccepted, handler{}, conn.Options{})
	before := client.Status()
	early := before.Changed()
	client.Stop()
	<-client.Done()
	<-early
	<-before.Changed()
	<-early
	select {
	case <-client.Status().Changed():
		t.Error("the last status has changed")
	case <-conn.Status{}.Changed():
		t.Error("the zero Status has changed")
	default:
	}
	late := conn.New(inmem.New(func(transport.Link) {}, inmem.Options{}), conn.Options{})
	unseen := late.Status()
	late.Stop()
	if err := late.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-unseen.Changed()
}

// Heard says on either side that the peer has sent a message. Stopping is no failure of an incarnation.
func TestHeard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connect(t, handler{"echo": echo}, conn.Options{})
		p.ready()
		if client, server := p.client.Status(), p.server().Status(); client.Heard || server.Heard {
			t.Errorf("at first: client %t, server %t, want false", client.Heard, server.Heard)
		}
		if _, err := p.client.Call(t.Context(), conn.Request{Method: "echo"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if client, server := p.client.Status(), p.server().Status(); !client.Heard || !server.Heard {
			t.Errorf("after a call: client %t, server %t, want true", client.Heard, server.Heard)
		}
		p.stop()
		if status := p.client.Status(); status.State != conn.Closing || status.LastFailure.Kind != "" {
			t.Errorf("after Stop: %s, last failure %v, want closing and none", status.State, status.LastFailure)
		}
	})
}

// AwaitReady says what the Conn has waited for, why its last attempt has failed, and why nobody waits any longer.
func TestAwaitReadySaysWhyTheLastAttemptFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opened := 0
		r := start(conn.New(opening(func(ctx context.Context) (transport.Link, error) {
			if opened++; opened == 1 {
				return nil, errors.New("no route")
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}), conn.Options{Tuning: conn.Tuning{BackoffMin: time.Second, BackoffMax: time.Second}}))
		synctest.Wait()
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		for _, want := range []string{"conn: not ready, backoff (open failed: no route): enough", "conn: not ready, starting (open failed: no route): enough"} {
			if err := r.AwaitReady(ctx); !errors.Is(err, enough) || err.Error() != want {
				t.Errorf("AwaitReady: %v, want %s", err, want)
			}
			advance(time.Second)
		}
		r.Stop()
		if err := r.AwaitReady(t.Context()); err == nil || err.Error() != "stopped" {
			t.Errorf("after Stop: %v, want the reason", err)
		}
		<-r.ended
		if status := r.Status(); status.State != conn.Closing || status.Reason.Kind != conn.Stopped || status.LastFailure.Kind != conn.OpenFailed || !status.NextAttempt.IsZero() {
			t.Errorf("after Stop: got %+v, want closing, and the last failure before that", status)
		}
	})
}
