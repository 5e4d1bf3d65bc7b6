package conn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// cancelling is a dialect in which a "cancel" of the peer's names its request.
type cancelling struct{ dialect }

func (cancelling) Classify(m *jsonrpc.Message) conn.Class {
	var id int64
	if m.Method == "cancel" && json.Unmarshal(m.Params, &[]any{&id}) == nil {
		return conn.Class{Kind: conn.Cancellation, Request: jsonrpc.IntegerID(id)}
	}
	return conn.Class{}
}

// slow handles nothing until it is told to.
type slow struct{ until chan struct{} }

func (s slow) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	<-s.until
	return nil, nil
}

func (s slow) ServeNotification(context.Context, *conn.Incoming) { <-s.until }

// A full is a Conn that has some of everything that is bounded.
type full struct {
	run
	link       *script
	busy, hurt bool          // the link takes nothing, or panics
	release    chan struct{} // the handlers, when closed
}

func fill(t *testing.T) *full {
	f := &full{link: &script{}, release: make(chan struct{})}
	f.link.onSend = func(*script, transport.Outbound) error {
		switch {
		case f.hurt:
			panic("the link")
		case f.busy:
			return transport.ErrBusy
		default:
			return nil
		}
	}
	f.run = scripted(t, f.link, conn.Options{Dialect: cancelling{}, Liveness: time.Second, Handler: slow{f.release}, MaxServing: 2})
	return f
}

// says has the peer send several frames, numbered from 1.
func (f *full) says(frames int, format string) {
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

// everything makes each depth another.
func (f *full) everything(t *testing.T) {
	for n := range 6 {
		f.link.receiver.StreamOpened(transport.Stream(n+1), 0)
	}
	f.says(2+5, `{"jsonrpc":"2.0","id":%d,"method":"serve"}`)
	f.says(1, `{"jsonrpc":"2.0","method":"cancel","params":[%d]}`) // it is being served still
	f.says(1+7, `{"jsonrpc":"2.0","method":"n","params":[%d]}`)    // one is being handled
	leaving, leave := context.WithCancel(t.Context())
	f.call(leaving, 3)
	leave()
	f.call(t.Context(), 4)
	f.busy = true
	f.call(t.Context(), 8)
}

// Depths are what there is while a Conn runs, and nothing when it does not,
// however it came to its end.
func TestDepths(t *testing.T) {
	for name, end := range map[string]func(*full){
		"stopped":  func(f *full) { f.Stop() },
		"panicked": func(f *full) { f.hurt = true; f.link.receiver.Writable() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := fill(t)
				advance(1500 * time.Millisecond)
				if len(f.link.frames()) != 1 {
					t.Fatalf("the peer was sent %q", f.link.frames())
				}
				f.wantDepths(t, conn.Depths{}) // a probe is nobody's call
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

// Who asks of an old status hears at once that there is a newer one, and so does who asked
// in time; and the zero Status never changes.
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
