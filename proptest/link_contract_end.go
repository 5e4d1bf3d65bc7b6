package proptest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// grace is long enough for any peer that reads its frames.
const grace = 10 * time.Second

// An endpoint is one link of a pair, and the receiver that is bound to it. It fails the test
// on any call the contract forbids.
type endpoint struct {
	t       rapid.TB
	name    string
	link    transport.Link
	timeout time.Duration

	linkMu  sync.Mutex     // serializes the calls of the link
	resumes sync.WaitGroup // calls of Resume for Main after its loss

	calls    atomic.Int32 // how many calls of the receiver are running
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each event
	streams  map[transport.Stream]*streamState
	taken    int // how many frames of Main next has returned
	writable int
	failed   []transport.Failure
	ended    bool
	losses   []transport.Loss
	violated error // the first violation of the contract
}

// A streamState is what the receiver of an endpoint has seen of one stream.
type streamState struct {
	tag      transport.Tag // the tag of the request that opened the stream; zero if the peer opened it
	granted  int
	received [][]byte
	closed   bool // the peer sends nothing more on the stream
	ended    bool // neither side sends anything more on the stream, or the stream was lost
}

func newEndpoint(t rapid.TB, name string, link transport.Link, o ContractOptions) *endpoint {
	return &endpoint{
		t: t, name: name, link: link, timeout: o.Wait(), changed: make(chan struct{}),
		streams: map[transport.Stream]*streamState{transport.Main: {}},
	}
}

func (e *endpoint) bind() { e.link.Bind(e) }

func (e *endpoint) grant(n int) { e.grantOn(transport.Main, n) }

func (e *endpoint) grantOn(stream transport.Stream, n int) {
	e.mu.Lock()
	e.streams[stream].granted += n
	e.mu.Unlock()
	e.mustReturn("Grant", func() { e.withLink(func() { e.link.Grant(stream, n) }) })
}

// main returns the state of Main. The caller holds mu.
func (e *endpoint) main() *streamState { return e.streams[transport.Main] }

// withLink makes sure that the link is called from one goroutine at a time.
func (e *endpoint) withLink(call func()) {
	e.linkMu.Lock()
	defer e.linkMu.Unlock()
	call()
}

func (e *endpoint) trySend(frame []byte) error { return e.sendTagged(0, frame) }

func (e *endpoint) sendTagged(tag transport.Tag, frame []byte) (err error) {
	e.withLink(func() { err = e.link.Send(notification(tag, frame)) })
	return err
}

func (e *endpoint) send(frame []byte) {
	e.t.Helper()
	e.sendOutbound(notification(0, frame))
}

// sendOutbound sends a frame that the link must accept. The last frame of a stream
// that the peer opened ends that stream.
func (e *endpoint) sendOutbound(o transport.Outbound) {
	e.t.Helper()
	var err error
	e.mu.Lock()
	if l := e.streams[o.Stream]; o.Last && o.Stream != transport.Main {
		l.ended = true
	}
	e.mu.Unlock()
	e.mustReturn("Send", func() { e.withLink(func() { err = e.link.Send(o) }) })
	if err != nil {
		e.t.Fatalf("%s: Send: %v", e.name, err)
	}
}

// sendWhenWritable sends a frame, and waits for Writable if the link is busy. It
// runs on another goroutine than the test, so it does not report a failure
// itself; the code that waits for the frame does.
func (e *endpoint) sendWhenWritable(frame []byte) {
	for {
		seen := e.snapshot(func(e *endpoint) int { return e.writable })
		if err := e.trySend(frame); !errors.Is(err, transport.ErrBusy) {
			return
		}
		if !e.await(func(e *endpoint) bool { return e.writable > seen || len(e.losses) > 0 }) {
			return
		}
	}
}

// fill sends frames to a peer without credit until the link is busy, and
// returns how many it accepted.
func (e *endpoint) fill(size int) (sent int) {
	e.t.Helper()
	for ; sent*size < 64<<20; sent++ {
		var err error
		e.mustReturn("Send", func() { err = e.trySend(frameOf(sent, size)) })
		switch {
		case errors.Is(err, transport.ErrBusy):
			return sent
		case err != nil:
			e.t.Fatalf("%s: Send: %v", e.name, err)
		}
	}
	e.t.Fatalf("%s: %d bytes were accepted, and the peer took none", e.name, sent*size)
	return 0
}

// next returns the next frame received.
func (e *endpoint) next() []byte {
	e.t.Helper()
	e.wait("a frame", func(e *endpoint) bool { return len(e.main().received) > e.taken })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken++
	return e.main().received[e.taken-1]
}

func (e *endpoint) wantNext(want []byte) {
	e.t.Helper()
	if got := e.next(); !bytes.Equal(got, want) {
		e.t.Fatalf("%s: frame %d arrived instead of frame %d", e.name, numberOf(got), numberOf(want))
	}
}

// close closes the link, and checks that the receiver gets the loss once.
func (e *endpoint) close(grace time.Duration) {
	e.t.Helper()
	var err error
	e.mustReturn("Close", func() { err = e.link.Close(grace) })
	e.mustReturn("Resume", e.resumes.Wait)
	if err != nil {
		e.t.Errorf("%s: Close left something behind: %v", e.name, err)
	}
	if n := e.snapshot(func(e *endpoint) int { return len(e.losses) }); n != 1 {
		e.t.Errorf("%s: Lost was called %d times when Close returned", e.name, n)
	}
	if violated := e.violation(); violated != nil {
		e.t.Errorf("%s: %v", e.name, violated)
	}
}

// waitEnd waits until the receiver gets Ended or Lost.
func (e *endpoint) waitEnd() {
	e.t.Helper()
	e.wait("Ended or Lost", func(e *endpoint) bool { return e.ended || len(e.losses) > 0 })
}

func (e *endpoint) wait(what string, reached func(*endpoint) bool) {
	e.t.Helper()
	if !e.await(reached) {
		e.t.Fatalf("%s: %s never came; violation: %v", e.name, what, e.violation())
	}
}

// await waits until a condition is true, and reports false if that takes too
// long.
func (e *endpoint) await(reached func(*endpoint) bool) bool {
	timeout := time.NewTimer(e.timeout)
	defer timeout.Stop()
	for {
		e.mu.Lock()
		ok, changed := reached(e), e.changed
		e.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timeout.C:
			return false
		}
	}
}

// mustReturn fails the test when a call does not return.
func (e *endpoint) mustReturn(name string, call func()) {
	e.t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	timeout := time.NewTimer(e.timeout)
	defer timeout.Stop()
	select {
	case <-returned:
	case <-timeout.C:
		e.t.Fatalf("%s: %s did not return", e.name, name)
	}
}

func (e *endpoint) snapshot(read func(*endpoint) int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return read(e)
}

func (e *endpoint) count() int {
	return e.snapshot(func(e *endpoint) int { return len(e.main().received) })
}

func (e *endpoint) receivedFrames() [][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.main().received)
}

func (e *endpoint) failures() []transport.Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.failed)
}

func (e *endpoint) violation() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.violated
}

func (e *endpoint) loss() transport.Loss {
	e.t.Helper()
	e.wait("Lost", func(e *endpoint) bool { return len(e.losses) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.losses[0]
}

// event records one call of the link to its receiver.
func (e *endpoint) event(name string, record func()) {
	alone := e.calls.Add(1) == 1
	defer e.calls.Add(-1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !alone {
		e.violate("%s during another call", name)
	}
	if len(e.losses) > 0 {
		e.violate("%s after Lost", name)
	}
	record()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *endpoint) violate(format string, args ...any) {
	if e.violated == nil {
		e.violated = fmt.Errorf(format, args...)
	}
}

func (e *endpoint) Writable() { e.event("Writable", func() { e.writable++ }) }

func (e *endpoint) Ended() {
	e.event("Ended", func() {
		if e.ended {
			e.violate("Ended twice")
		}
		e.ended = true
	})
}

func (e *endpoint) Lost(loss transport.Loss) {
	e.event("Lost", func() {
		if loss.Reason == nil {
			e.violate("lost without a reason")
		}
		e.losses = append(e.losses, loss)
	})
}
