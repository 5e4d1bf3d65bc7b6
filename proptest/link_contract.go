package proptest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// LinkContract checks the contract of transport.Link, in both directions: on Main, and on
// the streams that requests open, if the link has such streams. Every transport must pass
// it. If a call does not return, or an event does not come, LinkContract fails after a
// minute, or after ContractOptions.Guard.
//
// The function open returns two new links that are connected with each other, perhaps
// through other processes, and are not bound yet. LinkContract may call it hundreds of
// times. It closes both links. After that, and after the clean-ups of open, no goroutine
// may be left; a failure shows the stacks of those that are, and what started them.
//
// The frames are JSON-RPC notifications, which are sent on Main and must arrive there,
// requests with the method "n" and their answers, and one frame that is not JSON, which
// the peer may refuse. If the peer grants no credit, a link must return ErrBusy before 64
// MiB are sent.
//
// Guarantees: G-0014.1, G-0014.2, G-0014.3, G-0014.4, G-0014.5, G-0014.6,
// G-0014.7, G-0014.11, G-0014.17, G-0014.18
func LinkContract(t *testing.T, open func(t *testing.T) (a, b transport.Link), o ContractOptions) {
	for _, clause := range []struct {
		name  string
		check func(p *pair)
	}{
		{"a frame arrives intact whatever its size", (*pair).framesArriveIntact},
		{"a link does not parse what it sends", (*pair).framesAreOpaque},
		{"nothing is delivered without credit", (*pair).nothingWithoutCredit},
		{"a full queue returns ErrBusy and then calls Writable", (*pair).busyThenWritable},
		{"close flushes what is queued", (*pair).closeFlushes},
		{"the peer of a closed link gets Ended or Lost", (*pair).peerGetsLoss},
		{"a loss before bind is reported at bind", (*pair).lossBeforeBind},
		{"nothing is accepted after close", (*pair).nothingAcceptedAfterClose},
		{"nothing is delivered after close", (*pair).nothingDeliveredAfterClose},
		{"close may be called twice and concurrently", (*pair).closeIsIdempotent},
		{"close is bounded though the peer takes nothing", (*pair).closeIsBounded},
	} {
		for _, direction := range []string{"a to b", "b to a"} {
			t.Run(clause.name+"/"+direction, func(t *testing.T) {
				checkGoroutines(t, func(t *testing.T) { clause.check(openPair(t, t, open, direction, o)) })
			})
		}
	}
	for _, property := range []struct {
		name  string
		check func(rt *rapid.T, p *pair)
	}{
		{"order is kept with any credit", orderIsKept},
		{"unsent is never received", unsentIsNeverReceived},
		{"streams keep their order and their credit", streamsKeepOrder},
		{"a stream ends once", streamsEndOnce},
	} {
		t.Run(property.name, func(t *testing.T) {
			checkGoroutines(t, func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) {
					direction := rapid.SampledFrom([]string{"a to b", "b to a"}).Draw(rt, "direction")
					p := openPair(t, rt, open, direction, o)
					defer p.close()
					property.check(rt, p)
				})
			})
		})
	}
}

// checkGoroutines runs check as a subtest, so that its clean-ups have run, and then
// checks that no goroutine is left.
func checkGoroutines(t *testing.T, check func(t *testing.T)) {
	before := goleak.IgnoreCurrent()
	t.Run("", check)
	noneLeft(t, before)
}

// A cleanupTB is one test, or one case of a property. Its clean-ups run at its end.
type cleanupTB interface {
	rapid.TB
	Cleanup(func())
}

// A pair consists of both ends of a link under test.
type pair struct {
	t        rapid.TB
	from, to *endpoint
}

func openPair(t *testing.T, tb cleanupTB, open func(*testing.T) (a, b transport.Link), direction string, o ContractOptions) *pair {
	a, b := open(t)
	tb.Cleanup(func() { a.Close(0); b.Close(0) })
	p := &pair{t: tb, from: newEndpoint(tb, "sender", a, o), to: newEndpoint(tb, "receiver", b, o)}
	if direction == "b to a" {
		p.from, p.to = newEndpoint(tb, "sender", b, o), newEndpoint(tb, "receiver", a, o)
	}
	return p
}

func (p *pair) bind() {
	p.from.bind()
	p.to.bind()
}

// close closes both ends, first the one without queued frames, and checks the
// loss that each end reports.
func (p *pair) close() {
	p.t.Helper()
	p.to.close(grace)
	p.from.close(grace)
}

func (p *pair) framesArriveIntact() {
	p.bind()
	for _, size := range []int{minFrameSize, 100, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20} {
		p.to.grant(1)
		p.from.send(frameOf(size, size))
		if got := p.to.next(); !slices.Equal(got, frameOf(size, size)) {
			p.t.Fatalf("a frame of %d bytes arrived as %d other bytes", size, len(got))
		}
	}
	p.close()
}

// framesAreOpaque sends a frame that is not JSON, because a link may use only
// the route. The peer may refuse the frame: an HTTP server, for example, must
// read messages.
func (p *pair) framesAreOpaque() {
	p.bind()
	p.to.grant(1)
	frame := bytes.Repeat([]byte(`{not JSON"`), minFrameSize/10+1)
	var err error
	p.from.mustReturn("Send", func() { err = p.from.sendTagged(1, frame) })
	if err != nil {
		p.t.Fatalf("Send refused a frame that is not JSON: %v", err)
	}
	p.from.close(grace) // Close sends the frame first
	p.to.await(func(e *endpoint) bool { return len(e.main().received) > 0 || e.ended || len(e.losses) > 0 })
	if len(p.from.failures()) == 0 {
		p.to.wantNext(frame)
	}
	p.close()
}

func (p *pair) nothingWithoutCredit() {
	p.bind()
	for i := range 8 {
		p.from.send(frameOf(i, 64))
	}
	for i := range 4 {
		p.to.grant(1)
		p.to.wantNext(frameOf(i, 64))
		p.roundTrip(i)
	}
	p.close()
	if p.to.count() != 4 {
		p.t.Fatalf("%d frames were delivered against 4 credits", p.to.count())
	}
}

// roundTrip sends a frame in the other direction. In that time, an event that must not
// come would arrive.
func (p *pair) roundTrip(i int) {
	p.t.Helper()
	p.from.grant(1)
	p.to.send(frameOf(i, 64))
	p.from.wantNext(frameOf(i, 64))
}

func (p *pair) busyThenWritable() {
	p.bind()
	const size = 4 << 10
	sent := p.from.fill(size)
	refused := frameOf(sent, size)
	p.to.grant(sent)
	for i := range sent {
		p.to.wantNext(frameOf(i, size))
	}
	p.from.wait("Writable after ErrBusy", func(e *endpoint) bool { return e.writable > 0 })
	p.from.send(refused)
	p.to.grant(1)
	p.to.wantNext(refused)
	p.close()
}

func (p *pair) closeFlushes() {
	p.bind()
	const frames = 16
	p.to.grant(frames)
	for i := range frames {
		p.from.send(frameOf(i, 64))
	}
	p.from.close(grace)
	for i := range frames {
		p.to.wantNext(frameOf(i, 64))
	}
	if unsent := p.from.loss().Unsent; len(unsent) > 0 {
		p.t.Fatalf("tags %v are unsent, and were received", unsent)
	}
	p.close()
}

func (p *pair) peerGetsLoss() {
	p.bind()
	p.to.grant(1)
	p.from.close(grace)
	p.to.waitEnd()
	if reason := p.from.loss().Reason; !errors.Is(reason, transport.ErrClosed) {
		p.t.Fatalf("the side that closed got Lost with %v", reason)
	}
	p.close()
}

func (p *pair) lossBeforeBind() {
	p.from.bind()
	p.from.close(grace)
	p.to.bind()
	p.to.grant(1)
	p.to.waitEnd()
	p.close()
}

func (p *pair) nothingAcceptedAfterClose() {
	p.bind()
	p.from.close(grace)
	if err := p.from.link.Send(notification(0, frameOf(0, 64))); !errors.Is(err, transport.ErrClosed) {
		p.t.Fatalf("Send after Close returned %v", err)
	}
	p.close()
}

func (p *pair) nothingDeliveredAfterClose() {
	p.bind()
	p.from.grant(10)
	p.from.close(grace)
	for i := range 10 { // some may still be accepted, because this side may not know of the end yet
		if p.to.link.Send(notification(0, frameOf(i, 64))) != nil {
			break
		}
	}
	p.close()
	if p.from.count() > 0 {
		p.t.Fatalf("%d frames were delivered to a closed link", p.from.count())
	}
}

func (p *pair) closeIsIdempotent() {
	p.bind()
	p.from.send(frameOf(0, 64))
	var group sync.WaitGroup
	for _, g := range []time.Duration{grace, 100 * time.Millisecond, 0, -1} {
		group.Go(func() { p.from.close(g) })
		group.Go(func() { p.to.close(g) })
	}
	group.Wait()
	p.close()
}

func (p *pair) closeIsBounded() {
	p.bind()
	p.from.fill(4 << 10)
	p.from.close(100 * time.Millisecond)
	p.close()
}

// orderIsKept sends frames of random sizes while credit is granted in random portions.
func orderIsKept(rt *rapid.T, p *pair) {
	p.bind()
	sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(64, 256), rapid.IntRange(64, 100_000)), 1, 40).Draw(rt, "sizes")
	credit := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 10).Draw(rt, "credit")
	var sender sync.WaitGroup
	sender.Go(func() {
		for i, size := range sizes {
			p.from.sendWhenWritable(frameOf(i, size))
		}
	})
	for granted, turn := 0, 0; granted < len(sizes); turn++ {
		n := min(credit[turn%len(credit)], len(sizes)-granted)
		p.to.grant(n)
		for i := range n {
			p.to.wantNext(frameOf(granted+i, sizes[granted+i]))
		}
		granted += n
	}
	sender.Wait()
}

// unsentIsNeverReceived ends a link from either side while frames are being
// sent.
func unsentIsNeverReceived(rt *rapid.T, p *pair) {
	p.bind()
	size := rapid.SampledFrom([]int{64, 4 << 10, 200_000}).Draw(rt, "size")
	frames := rapid.IntRange(0, 60).Draw(rt, "frames")
	p.to.grant(rapid.IntRange(1, 60).Draw(rt, "credit"))
	var accepted []transport.Tag
	for i := range frames {
		o := notification(transport.Tag(i+1), frameOf(i, size))
		if p.from.link.Send(o) == nil {
			accepted = append(accepted, o.Tag)
		}
	}
	if rapid.Bool().Draw(rt, "receiver closes first") {
		p.to.close(0)
	}
	p.from.close(0)
	p.to.close(0)
	p.checkUnsent(accepted)
}

// checkUnsent checks that the tag of each unsent frame is reported once, and
// that the peer did not receive the frame.
func (p *pair) checkUnsent(accepted []transport.Tag) {
	unsent := p.from.loss().Unsent
	if !slices.IsSorted(unsent) {
		p.t.Fatalf("unsent tags %v are not in the order they were sent", unsent)
	}
	reported := slices.Clone(unsent)
	for _, f := range p.from.failures() {
		if reported = append(reported, f.Tag); f.Unsent {
			unsent = append(unsent, f.Tag)
		}
	}
	if slices.Sort(reported); len(slices.Compact(slices.Clone(reported))) != len(reported) {
		p.t.Fatalf("tags %v failed or are unsent, and some were reported twice", reported)
	}
	for _, tag := range reported {
		if !slices.Contains(accepted, tag) {
			p.t.Fatalf("tag %d was never accepted", tag)
		}
	}
	for _, frame := range p.to.receivedFrames() {
		if tag := transport.Tag(numberOf(frame) + 1); slices.Contains(unsent, tag) {
			p.t.Fatalf("tag %d is unsent and its frame was received", tag)
		}
	}
}

// minFrameSize is the minimum size of a frame.
const minFrameSize = 64

// frameOf returns frame number n, a notification of exactly size bytes.
func frameOf(n, size int) []byte {
	head, tail := fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":[%d,"`, n), `"]}`
	frame := bytes.Repeat([]byte("123456789"), size/9+1)[:size]
	copy(frame, head)
	copy(frame[size-len(tail):], tail)
	return frame
}

// notification is a frame with its route.
func notification(tag transport.Tag, frame []byte) transport.Outbound {
	return transport.Outbound{Tag: tag, Frame: frame, Route: transport.Route{Kind: jsonrpc.KindNotification, Method: "n"}}
}

// numberOf returns the number of a frame, or -1 if this test has not sent it.
func numberOf(frame []byte) int {
	n := -1
	if _, err := fmt.Sscanf(string(frame[:min(len(frame), 64)]), `{"jsonrpc":"2.0","method":"n","params":[%d,`, &n); err != nil {
		return -1
	}
	return n
}
