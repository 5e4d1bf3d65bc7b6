package streamable

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// hangLimit limits how long a test waits for something that does not come.
const hangLimit = 40 * time.Second

// A script answers one message. It runs on the goroutine of the peer.
type script func(p *peer, in transport.Inbound, m jsonrpc.Message)

// A peer is the receiver of one link, and its user: a goroutine that grants credit and
// runs a script, until the link is lost.
type peer struct {
	link         transport.Link
	play         script
	manualCredit bool // grants no credit by itself

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each event
	mailbox  []func()
	opened   []transport.Stream
	received []transport.Inbound
	lost     []transport.StreamLoss
	failed   []transport.Failure
	writable int
	losses   []transport.Loss
	breaches []string
	calling  bool
	done     chan struct{}
}

func newPeer(link transport.Link, play script, stingy bool) *peer {
	p := &peer{link: link, play: play, manualCredit: stingy, changed: make(chan struct{}), done: make(chan struct{})}
	go p.run()
	link.Bind(p)
	if !stingy {
		p.post(func() { link.Grant(transport.Main, 1) })
	}
	return p
}

func (p *peer) run() {
	defer close(p.done)
	for {
		p.mu.Lock()
		mailbox, over, changed := p.mailbox, len(p.losses) > 0, p.changed
		p.mailbox = nil
		p.mu.Unlock()
		for _, act := range mailbox {
			act()
		}
		if over {
			return
		}
		if len(mailbox) == 0 {
			<-changed
		}
	}
}

// post runs act on the goroutine of the peer.
func (p *peer) post(act func()) { p.note(func() { p.mailbox = append(p.mailbox, act) }) }

func (p *peer) note(record func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record()
	close(p.changed)
	p.changed = make(chan struct{})
}

// called records one call of the link, and checks it against the contract.
func (p *peer) called(what string, record func()) {
	p.mu.Lock()
	if p.calling {
		p.breaches = append(p.breaches, what+" during another call")
	}
	if len(p.losses) > 0 {
		p.breaches = append(p.breaches, what+" after Lost")
	}
	p.calling = true
	p.mu.Unlock()
	p.note(func() {
		record()
		p.calling = false
	})
}

func (p *peer) StreamOpened(stream transport.Stream, tag transport.Tag) {
	p.called("StreamOpened", func() {
		if tag != 0 || stream == transport.Main || slices.Contains(p.opened, stream) {
			p.breaches = append(p.breaches, fmt.Sprintf("stream %d opened for tag %d", stream, tag))
		}
		p.opened = append(p.opened, stream)
		if !p.manualCredit {
			p.mailbox = append(p.mailbox, func() { p.link.Grant(stream, 1) })
		}
	})
}

func (p *peer) Receive(in transport.Inbound) {
	p.called("Receive", func() {
		p.received = append(p.received, in)
		p.mailbox = append(p.mailbox, func() {
			if in.Stream == transport.Main && !p.manualCredit {
				p.link.Grant(transport.Main, 1)
			}
			m, _ := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
			p.play(p, in, m)
			if isHeld := m.Method == "hold" || m.Method == protocol.MethodListen || m.Method == ""; in.Room != nil && !isHeld {
				in.Room.Release()
			}
		})
	})
}

func (p *peer) StreamLost(loss transport.StreamLoss) {
	p.called("StreamLost", func() { p.lost = append(p.lost, loss) })
}
func (p *peer) Writable() { p.called("Writable", func() { p.writable++ }) }
func (p *peer) Failed(f transport.Failure) {
	p.called("Failed", func() { p.failed = append(p.failed, f) })
}
func (p *peer) Ended() { p.called("Ended", func() {}) }
func (p *peer) Lost(loss transport.Loss) {
	p.called("Lost", func() {
		p.losses = append(p.losses, loss)
		p.release(p.received...)
	})
}

// release does what a Conn does when the handlers of requests have returned.
func (p *peer) release(requests ...transport.Inbound) {
	for _, in := range requests {
		if in.Room != nil {
			in.Room.Release()
		}
	}
}

// returned says that the handlers of all requests but the last few have returned.
func (p *peer) returned(running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(p.received[:len(p.received)-running]...)
}

// await waits until the peer reaches a state.
func (p *peer) await(t testing.TB, what string, reached func(*peer) bool) {
	t.Helper()
	guard := time.NewTimer(hangLimit)
	defer guard.Stop()
	for {
		p.mu.Lock()
		ok, changed := reached(p), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-guard.C:
			t.Fatalf("got no %s in time", what)
		}
	}
}

func (p *peer) awaitReceived(t testing.TB, n int) {
	t.Helper()
	p.await(t, fmt.Sprintf("frame %d", n), func(p *peer) bool { return len(p.received) >= n })
}

func (p *peer) awaitLoss(t testing.TB) transport.Loss {
	t.Helper()
	p.await(t, "Lost", func(p *peer) bool { return len(p.losses) > 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.losses[0]
}

// count reads a number while it holds the lock.
func (p *peer) count(read func(*peer) int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return read(p)
}

// send calls Send on the goroutine of the peer, and returns its result.
func (p *peer) send(t testing.TB, o transport.Outbound) error {
	t.Helper()
	said := make(chan error, 1)
	if o.Route == (transport.Route{}) {
		o.Route = outbound(0, string(o.Frame)).Route
	}
	p.post(func() { said <- p.link.Send(o) })
	select {
	case err := <-said:
		return err
	case <-p.done:
		return p.link.Send(o)
	}
}

func (p *peer) mustSend(t testing.TB, o transport.Outbound) {
	t.Helper()
	if err := p.send(t, o); err != nil {
		t.Fatalf("Send on stream %d: %v", o.Stream, err)
	}
}

// An acceptor contains the peers of a handler's links.
type acceptor struct {
	play   script
	stingy bool

	mu      sync.Mutex
	peers   []*peer
	arrived chan struct{}
}

func newAcceptor(play script) *acceptor { return &acceptor{play: play, arrived: make(chan struct{})} }

func (a *acceptor) Close(context.Context) error { return nil }

func (a *acceptor) Accept(link transport.Link) {
	p := newPeer(link, a.play, a.stingy)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peers = append(a.peers, p)
	close(a.arrived)
	a.arrived = make(chan struct{})
}

// peer waits for link number n, from 0.
func (a *acceptor) peer(t testing.TB, n int) *peer {
	t.Helper()
	guard := time.NewTimer(hangLimit)
	defer guard.Stop()
	for {
		a.mu.Lock()
		peers, arrived := a.peers, a.arrived
		a.mu.Unlock()
		if n < len(peers) {
			return peers[n]
		}
		select {
		case <-arrived:
		case <-guard.C:
			t.Fatalf("link %d was not accepted in time", n)
		}
	}
}

func (a *acceptor) links() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.peers)
}

// finish waits for the goroutines of all peers, and checks what they recorded.
func (a *acceptor) finish(t testing.TB) {
	t.Helper()
	for n := range a.links() {
		p := a.peer(t, n)
		<-p.done
		if len(p.breaches) > 0 || len(p.losses) != 1 {
			t.Errorf("link %d: got %d losses and the breaches %q, want 1 and none", n, len(p.losses), p.breaches)
		}
	}
}

// acceptFunc is a function as an Acceptor.
type acceptFunc func(transport.Link)

func (accept acceptFunc) Accept(link transport.Link)  { accept(link) }
func (accept acceptFunc) Close(context.Context) error { return nil }

// accepting returns the Acceptor of a function. A function cannot be compared, but its
// address can.
func accepting(accept acceptFunc) transport.Acceptor { return &accept }

// respond is the script of most tests. Its methods are: initialize (fails without a
// version), echo, notify (first sends params.n notifications), fail (with params.code),
// end (ends the stream), and hold (gets no response).
func respond(p *peer, in transport.Inbound, m jsonrpc.Message) {
	if m.Kind != jsonrpc.KindRequest {
		return
	}
	var params struct {
		ProtocolVersion string
		N               int
		Code            int64
	}
	json.Unmarshal(m.Params, &params)
	last := func(frame []byte) {
		p.link.Send(answering(in.Stream, string(frame)))
	}
	switch m.Method {
	case "initialize":
		if params.ProtocolVersion == "" {
			last(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no version"}))
			return
		}
		last(jsonrpc.AppendResult(nil, m.ID, fmt.Appendf(nil, `{"protocolVersion":%q}`, params.ProtocolVersion)))
	case "echo", "tools/call", "resources/read":
		last(jsonrpc.AppendResult(nil, m.ID, m.Params))
	case "notify":
		for i := range params.N {
			p.link.Send(transport.Outbound{Stream: in.Stream, Frame: notice(i)})
		}
		last(jsonrpc.AppendResult(nil, m.ID, nil))
	case "fail":
		last(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: params.Code, Message: "failed"}))
	case "end":
		p.link.End(in.Stream)
	}
}

// notice is a notification with a line break, which must not be in the data of an
// event.
func notice(n int) []byte {
	return fmt.Appendf(nil, "{\"jsonrpc\":\"2.0\",\r\n\"method\":\"n\",\r\"params\":[%d]}", n)
}

func noticeLine(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0",  "method":"n", "params":[%d]}`, n)
}

// flushAndEnd sends notifications and ends the stream.
func flushAndEnd(p *peer, in transport.Inbound, _ jsonrpc.Message) {
	for n := range 50 {
		p.link.Send(transport.Outbound{Stream: in.Stream, Frame: notice(n)})
	}
	p.link.End(in.Stream)
}
