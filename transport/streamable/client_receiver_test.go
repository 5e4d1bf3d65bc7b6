package streamable

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// hangGuard turns waiting for what never comes into a failure. Nothing is
// measured by it.
const hangGuard = 40 * time.Second

// A testReceiver records its calls.
type testReceiver struct {
	t       *testing.T
	link    transport.Link
	calls   chan struct{} // holds one element while a call runs
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each call

	received []transport.Inbound
	opened   map[transport.Tag]transport.Stream
	broken   []transport.StreamLoss
	failed   []transport.Failure
	losses   []transport.Loss
	writable int
	doubts   []transport.Tag
	breaches []string

	receiving func() // called during Receive; nil: nothing is
}

// open opens a link with a recording receiver, and closes it at the end of the test.
func open(t *testing.T, client *Client) *testReceiver {
	t.Helper()
	link, err := client.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &testReceiver{t: t, link: link, calls: make(chan struct{}, 1), changed: make(chan struct{}), opened: make(map[transport.Tag]transport.Stream)}
	t.Cleanup(func() {
		if err := link.Close(0); err != nil {
			t.Errorf("Close returned %v, want nothing left behind", err)
		}
		if len(r.losses) != 1 {
			t.Errorf("Lost was called %d times, want 1", len(r.losses))
		}
		for _, breach := range r.breaches {
			t.Error(breach)
		}
	})
	link.Bind(r)
	return r
}

// connect opens a link to a server with the handler.
func connect(t *testing.T, handler http.HandlerFunc) *testReceiver {
	t.Helper()
	return open(t, &Client{URL: serve(t, handler)})
}

// serve runs a server with the handler, and returns its address.
func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// send sends a frame whose tag is its id.
func (r *testReceiver) send(tag transport.Tag, frame string) {
	r.t.Helper()
	if err := r.link.Send(outbound(tag, frame)); err != nil {
		r.t.Fatalf("Send %s: %v", frame, err)
	}
}

// outbound returns a frame with the route that its sender would set.
func outbound(tag transport.Tag, frame string) transport.Outbound {
	o := transport.Outbound{Tag: tag, Frame: []byte(frame)}
	m := body{frame: o.Frame}
	if m.decode() != nil || m.batch {
		return o
	}
	o.Route = transport.Route{Kind: m.Kind, Method: m.Method, ID: m.ID}
	if m.modern() {
		method, _ := protocol.MethodInfo(m.Method)
		o.Route.Version, o.Route.Name = textOf(m.meta.Version), method.NameOf(m.Params)
	}
	if m.Kind == jsonrpc.KindError {
		o.Route.Code = m.Error.Code
	}
	var cancelled protocol.CancelledParams
	if m.Method == protocol.NotificationCancelled && protocol.Unmarshal(m.Params, &cancelled) == nil {
		o.Route.ID = cancelled.RequestID
	}
	return o
}

// answering returns the last frame of a stream.
func answering(stream transport.Stream, frame string) transport.Outbound {
	o := outbound(0, frame)
	o.Stream, o.Last = stream, true
	return o
}

// call sends a modern request, grants its stream credit, and returns it.
func (r *testReceiver) call(id int, credit int) transport.Stream {
	r.t.Helper()
	return r.request(id, credit, request(id, "tools/call", `"name":"echo",`+modernMeta))
}

// callLegacy is call for a legacy request.
func (r *testReceiver) callLegacy(id int, credit int) transport.Stream {
	r.t.Helper()
	return r.request(id, credit, request(id, "tools/call", `"name":"echo"`))
}

func (r *testReceiver) request(id int, credit int, frame string) transport.Stream {
	r.t.Helper()
	r.send(transport.Tag(id), frame)
	r.mu.Lock()
	stream, ok := r.opened[transport.Tag(id)]
	r.mu.Unlock()
	if !ok {
		r.t.Fatalf("Send returned without a stream for request %d, want one", id)
	}
	r.link.Grant(stream, credit)
	return stream
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func request(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, params)
}

func notification(method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method)
}

func result(id any) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":{}}`, id)
}

// event records one call of the receiver. Calls must not overlap, and none may follow
// the loss.
func (r *testReceiver) event(name string, record func()) {
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
	default:
		r.breach(name + " during another call")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.losses) > 0 {
		r.breaches = append(r.breaches, name+" after Lost")
	}
	record()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *testReceiver) breach(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breaches = append(r.breaches, text)
}

func (r *testReceiver) Receive(in transport.Inbound) {
	r.event("Receive", func() { r.received = append(r.received, in) })
	if r.receiving != nil {
		r.receiving()
	}
}
func (r *testReceiver) StreamOpened(stream transport.Stream, tag transport.Tag) {
	r.event("StreamOpened", func() { r.opened[tag] = stream })
}
func (r *testReceiver) StreamLost(loss transport.StreamLoss) {
	r.event("StreamLost", func() { r.broken = append(r.broken, loss) })
}
func (r *testReceiver) Writable() { r.event("Writable", func() { r.writable++ }) }
func (r *testReceiver) Failed(f transport.Failure) {
	r.event("Failed", func() { r.failed = append(r.failed, f) })
}
func (r *testReceiver) Doubt(tag transport.Tag, why error) {
	r.event("Doubt", func() {
		if r.doubts = append(r.doubts, tag); why == nil {
			r.breaches = append(r.breaches, "a doubt without a reason")
		}
	})
}
func (r *testReceiver) Ended() {
	r.event("Ended", func() { r.breaches = append(r.breaches, "Ended was called") })
}
func (r *testReceiver) Lost(loss transport.Loss) {
	r.event("Lost", func() { r.losses = append(r.losses, loss) })
}

// await waits until the record reaches a state.
func (r *testReceiver) await(what string, reached func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
	defer cancel()
	for {
		r.mu.Lock()
		ok, changed := reached(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("got no %s in time; received %d, failed %v, streams lost %v, lost %v", what, len(r.received), r.failed, r.broken, r.losses)
		}
	}
}

// frame waits for the frame number n, from 0, and returns it.
func (r *testReceiver) frame(n int) transport.Inbound {
	r.t.Helper()
	r.await(fmt.Sprintf("frame %d", n), func() bool { return len(r.received) > n })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received[n]
}

// wantFrame waits for frame number n, and compares it.
func (r *testReceiver) wantFrame(n int, stream transport.Stream, want string, last bool) {
	r.t.Helper()
	if in := r.frame(n); string(in.Frame) != want || in.Stream != stream || in.Last != last || in.Err != nil {
		r.t.Fatalf("frame %d is %q on stream %d, last %v, error %v; want %q on %d, last %v", n, in.Frame, in.Stream, in.Last, in.Err, want, stream, last)
	}
}

func (r *testReceiver) failure(n int) transport.Failure {
	r.t.Helper()
	r.await(fmt.Sprintf("failure %d", n), func() bool { return len(r.failed) > n })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed[n]
}

func (r *testReceiver) streamLoss(n int) transport.StreamLoss {
	r.t.Helper()
	r.await(fmt.Sprintf("stream loss %d", n), func() bool { return len(r.broken) > n })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken[n]
}

func (r *testReceiver) loss() transport.Loss {
	r.t.Helper()
	r.await("Lost", func() bool { return len(r.losses) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.losses[0]
}

// wantQuiet closes the link and checks that the receiver got nothing but that many
// frames and the loss.
func (r *testReceiver) wantQuiet(frames int) {
	r.t.Helper()
	r.link.Close(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.received) != frames || len(r.failed)+len(r.broken)+r.writable > 0 {
		r.t.Fatalf("received %d frames, failures %v, streams lost %v, writable %d; want %d frames and no more",
			len(r.received), r.failed, r.broken, r.writable, frames)
	}
}

// wait waits for a channel, and fails the test if nothing comes in time.
func receive(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case <-done:
	case <-guard.C:
		t.Fatalf("got no %s in time", what)
	}
}

// hold delays a request until release, or until its client has disconnected.
func hold(req *http.Request, release <-chan struct{}) {
	select {
	case <-release:
	case <-req.Context().Done():
	}
}
