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

// An end is one link of a pair and the receiver bound to it. It fails the test
// on any call the contract forbids.
type end struct {
	t        rapid.TB
	name     string
	link     transport.Link
	patience time.Duration

	turn     sync.Mutex     // serializes the calls of the link
	resuming sync.WaitGroup // calls of Resume for Main after its loss

	calls    atomic.Int32 // how many calls of the receiver are running
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each event
	lanes    map[transport.Stream]*lane
	taken    int // how many frames of Main next has returned
	writable int
	failed   []transport.Failure
	ended    bool
	losses   []transport.Loss
	broken   error // the first violation of the contract
}

// A lane is what the receiver of an end has seen of one stream.
type lane struct {
	tag      transport.Tag // the tag of the request that opened the stream; zero if the peer opened it
	granted  int
	received [][]byte
	closed   bool // the peer sends nothing more on the stream
	over     bool // neither side sends anything more on the stream, or the stream was lost
}

func newEnd(t rapid.TB, name string, link transport.Link, o ContractOptions) *end {
	return &end{
		t: t, name: name, link: link, patience: o.guard(), changed: make(chan struct{}),
		lanes: map[transport.Stream]*lane{transport.Main: {}},
	}
}

func (e *end) bind() { e.link.Bind(e) }

func (e *end) grant(n int) { e.grantOn(transport.Main, n) }

func (e *end) grantOn(stream transport.Stream, n int) {
	e.mu.Lock()
	e.lanes[stream].granted += n
	e.mu.Unlock()
	e.guard("Grant", func() { e.use(func() { e.link.Grant(stream, n) }) })
}

// main returns the lane of Main. The caller holds mu.
func (e *end) main() *lane { return e.lanes[transport.Main] }

// use makes sure that the link is called from one goroutine at a time.
func (e *end) use(call func()) {
	e.turn.Lock()
	defer e.turn.Unlock()
	call()
}

func (e *end) offer(frame []byte) error { return e.sendTagged(0, frame) }

func (e *end) sendTagged(tag transport.Tag, frame []byte) (err error) {
	e.use(func() { err = e.link.Send(notification(tag, frame)) })
	return err
}

func (e *end) send(frame []byte) {
	e.t.Helper()
	e.sendOut(notification(0, frame))
}

// sendOut sends a frame that the link must accept. The last frame of a stream
// that the peer opened ends that stream.
func (e *end) sendOut(o transport.Outbound) {
	e.t.Helper()
	var err error
	e.mu.Lock()
	if l := e.lanes[o.Stream]; o.Last && o.Stream != transport.Main {
		l.over = true
	}
	e.mu.Unlock()
	e.guard("Send", func() { e.use(func() { err = e.link.Send(o) }) })
	if err != nil {
		e.t.Fatalf("%s: Send: %v", e.name, err)
	}
}

// sendPatiently sends a frame, and waits for Writable if the link is busy. It
// runs on another goroutine than the test, so it does not report a failure
// itself; the code that waits for the frame does.
func (e *end) sendPatiently(frame []byte) {
	for {
		seen := e.snapshot(func(e *end) int { return e.writable })
		if err := e.offer(frame); !errors.Is(err, transport.ErrBusy) {
			return
		}
		if !e.await(func(e *end) bool { return e.writable > seen || len(e.losses) > 0 }) {
			return
		}
	}
}

// fill sends frames to a peer without credit until the link is busy, and
// returns how many it accepted.
func (e *end) fill(size int) (sent int) {
	e.t.Helper()
	for ; sent*size < 64<<20; sent++ {
		var err error
		e.guard("Send", func() { err = e.offer(frameOf(sent, size)) })
		switch {
		case errors.Is(err, transport.ErrBusy):
			return sent
		case err != nil:
			e.t.Fatalf("%s: Send: %v", e.name, err)
		}
	}
	e.t.Fatalf("%s: %d bytes were accepted and nothing taken", e.name, sent*size)
	return 0
}

// next returns the next frame received.
func (e *end) next() []byte {
	e.t.Helper()
	e.wait("a frame", func(e *end) bool { return len(e.main().received) > e.taken })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken++
	return e.main().received[e.taken-1]
}

func (e *end) wantNext(want []byte) {
	e.t.Helper()
	if got := e.next(); !bytes.Equal(got, want) {
		e.t.Fatalf("%s: frame %d arrived where %d was due", e.name, numberOf(got), numberOf(want))
	}
}

// close closes the link, and checks that the receiver gets the loss once.
func (e *end) close(grace time.Duration) {
	e.t.Helper()
	var err error
	e.guard("Close", func() { err = e.link.Close(grace) })
	e.guard("Resume", e.resuming.Wait)
	if err != nil {
		e.t.Errorf("%s: Close left something behind: %v", e.name, err)
	}
	if n := e.snapshot(func(e *end) int { return len(e.losses) }); n != 1 {
		e.t.Errorf("%s: Lost was called %d times when Close returned", e.name, n)
	}
	if broken := e.breach(); broken != nil {
		e.t.Errorf("%s: %v", e.name, broken)
	}
}

// waitEnd waits until the end knows that its peer sends nothing more.
func (e *end) waitEnd() {
	e.t.Helper()
	e.wait("Ended or Lost", func(e *end) bool { return e.ended || len(e.losses) > 0 })
}

func (e *end) wait(what string, reached func(*end) bool) {
	e.t.Helper()
	if !e.await(reached) {
		e.t.Fatalf("%s: %s never came; breach: %v", e.name, what, e.breach())
	}
}

// await waits until a condition is true, and reports false if that takes too
// long.
func (e *end) await(reached func(*end) bool) bool {
	guard := time.NewTimer(e.patience)
	defer guard.Stop()
	for {
		e.mu.Lock()
		ok, changed := reached(e), e.changed
		e.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-guard.C:
			return false
		}
	}
}

// guard fails the test when a call does not return.
func (e *end) guard(name string, call func()) {
	e.t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	guard := time.NewTimer(e.patience)
	defer guard.Stop()
	select {
	case <-returned:
	case <-guard.C:
		e.t.Fatalf("%s: %s did not return", e.name, name)
	}
}

func (e *end) snapshot(read func(*end) int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return read(e)
}

func (e *end) count() int { return e.snapshot(func(e *end) int { return len(e.main().received) }) }

func (e *end) all() [][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.main().received)
}

func (e *end) failures() []transport.Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.failed)
}

func (e *end) breach() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broken
}

func (e *end) loss() transport.Loss {
	e.t.Helper()
	e.wait("Lost", func(e *end) bool { return len(e.losses) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.losses[0]
}

// event records one call of the link to its receiver.
func (e *end) event(name string, record func()) {
	alone := e.calls.Add(1) == 1
	defer e.calls.Add(-1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !alone {
		e.breaks("%s during another call", name)
	}
	if len(e.losses) > 0 {
		e.breaks("%s after Lost", name)
	}
	record()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *end) breaks(format string, args ...any) {
	if e.broken == nil {
		e.broken = fmt.Errorf(format, args...)
	}
}

func (e *end) Writable() { e.event("Writable", func() { e.writable++ }) }

func (e *end) Ended() {
	e.event("Ended", func() {
		if e.ended {
			e.breaks("Ended twice")
		}
		e.ended = true
	})
}

func (e *end) Lost(loss transport.Loss) {
	e.event("Lost", func() {
		if loss.Reason == nil {
			e.breaks("lost without a reason")
		}
		e.losses = append(e.losses, loss)
	})
}
