package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// The writer knows which frames it has not begun to write when the system accepts no
// more bytes, whether Send writes or the writer's goroutine.
//
// Guarantees: G-0014.6, G-0051.2
func TestWriterKnowsWhichFramesWereNotStarted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		framing := rapid.SampledFrom([]Framing{Lines, ContentLength}).Draw(t, "framing")
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 2*batchSize)), 1, 20).Draw(t, "sizes")
		total := 0
		for _, size := range sizes {
			total += len(framed(framing, bytes.Repeat([]byte("x"), size)))
		}
		accepted := rapid.IntRange(0, total).Draw(t, "accepted")
		pipe := &limitedPipe{room: accepted}
		w := newWriter(pipe, framing)
		if portion := rapid.SampledFrom([]int{0, 1, 7, 1000, batchSize}).Draw(t, "taken at once"); portion > 0 {
			w.direct = &partialPipe{pipe, portion}
		}
		var stream []byte
		var unsent []transport.Tag
		for i, size := range sizes {
			frame := bytes.Repeat([]byte{'a' + byte(i)}, size)
			err := w.send(transport.Outbound{Tag: transport.Tag(i + 1), Frame: frame})
			if errors.Is(err, transport.ErrClosed) && len(pipe.taken) == accepted {
				break // an earlier write has failed
			} else if err != nil {
				t.Fatal(err)
			}
			if len(stream) >= accepted {
				unsent = append(unsent, transport.Tag(i+1))
			}
			stream = append(stream, framed(framing, frame)...)
			if rapid.Bool().Draw(t, "flush") { // from here on, Send collects frames
				w.flush()
			}
		}
		w.finish()
		if err := w.run(func() {}); (err != nil) != (accepted < total) {
			t.Fatalf("run returned %v", err)
		}
		if !bytes.Equal(pipe.taken, stream[:accepted]) {
			t.Fatal("got other bytes than expected")
		}
		if got := w.unsent(); !slices.Equal(got, unsent) {
			t.Fatalf("got the unsent frames %v, want %v", got, unsent)
		}
	})
}

// framed returns a frame as it is on its stream.
func framed(framing Framing, frame []byte) string {
	if framing == ContentLength {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(frame), frame)
	}
	return string(frame) + "\n"
}

// partialPipe accepts a part of each text, and passes it to its pipe.
type partialPipe struct {
	*limitedPipe
	portion int
}

func (h *partialPipe) Write(b []byte) (int, error) {
	return h.limitedPipe.Write(b[:min(len(b), h.portion)])
}

// limitedPipe accepts some bytes and then fails, as a pipe whose reader has closed.
type limitedPipe struct {
	room  int
	taken []byte
	calls int
	sizes []int // of what was to be written
}

func (p *limitedPipe) Write(b []byte) (int, error) {
	p.calls++
	p.sizes = append(p.sizes, len(b))
	n := min(len(b), p.room)
	p.room -= n
	p.taken = append(p.taken, b[:n]...)
	if n < len(b) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// Frames that are queued are written in one write.
func TestQueuedFramesGoOutInOneWrite(t *testing.T) {
	pipe := &limitedPipe{room: 1 << 20}
	w := newWriter(pipe, Lines)
	for range 200 {
		if err := w.send(transport.Outbound{Frame: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	w.finish()
	if err := w.run(func() {}); err != nil || pipe.calls != 1 {
		t.Fatalf("200 frames were written in %d writes, %v, want 1", pipe.calls, err)
	}
}

// Frames are written together as long as they are under 64 KiB, and a longer one by itself; a line is not copied for that, so
// its newline goes with the next.
func TestHowFramesAreBatched(t *testing.T) {
	const most = batchSize
	header := func(size int) int { return len(ContentLength.before(make([]byte, size))) }
	for name, test := range map[string]struct {
		framing Framing
		frames  []int
		want    []int
	}{
		"none":                 {Lines, nil, nil},
		"short lines":          {Lines, []int{1, 20, 300}, []int{1 + 20 + 300 + 3}},
		"lines that just fit":  {Lines, []int{10, most - 12}, []int{most}},
		"lines that do not":    {Lines, []int{10, most - 11}, []int{11, most - 10}},
		"just no long line":    {Lines, []int{most - 1, 5}, []int{most, 6}},
		"long lines":           {Lines, []int{most, 5, 3 * most, 7}, []int{most, 1 + 6, 3 * most, 1 + 8}},
		"the last one is long": {Lines, []int{5, most}, []int{6, most, 1}},
		"short frames":         {ContentLength, []int{1, 20, 300}, []int{1 + 20 + 300 + header(1) + header(20) + header(300)}},
		"long frames":          {ContentLength, []int{most, 5, 3 * most}, []int{most + header(most), 5 + header(5), 3*most + header(3*most)}},
	} {
		pipe := &limitedPipe{room: 1 << 30}
		w := newWriter(pipe, test.framing)
		var want []byte
		for n, size := range test.frames {
			frame := bytes.Repeat([]byte{'a' + byte(n)}, size)
			want = append(want, framed(test.framing, frame)...)
			if err := w.send(transport.Outbound{Frame: frame}); err != nil {
				t.Fatal(err)
			}
		}
		w.finish()
		if err := w.run(func() {}); err != nil || !slices.Equal(pipe.sizes, test.want) || !bytes.Equal(pipe.taken, want) {
			t.Errorf("%s: got writes of %d bytes, %v, want %d, and the same bytes: %t", name, pipe.sizes, err, test.want, bytes.Equal(pipe.taken, want))
		}
	}
}

// From the first flush on, Send leaves frames to the next one, until there are four, eight and so on up to 64 of them or 64 KiB.
//
// Guarantees: G-0051.3, G-0066.1
func TestWhenSendWritesByItself(t *testing.T) {
	const most = batchSize
	for name, test := range map[string]struct {
		held   bool // flush leaves the writing to release
		frames []int
		sent   []int // writes before anything is flushed
		rest   []int // writes by the flush
	}{
		"three":                 {false, []int{1, 1, 1}, nil, []int{6}},
		"four":                  {false, []int{1, 1, 1, 1}, []int{8}, nil},
		"four, and eight":       {false, slices.Repeat([]int{1}, 12), []int{8, 16}, nil},
		"up to 64, and again":   {false, slices.Repeat([]int{1}, 4+8+16+32+64+64+5), []int{8, 16, 32, 64, 128, 128}, []int{10}},
		"nearly 64 KiB":         {false, []int{most - 1}, nil, []int{most}},
		"64 KiB":                {false, []int{most}, []int{most}, nil},
		"64 KiB together":       {false, []int{most / 2, most / 2, 1}, []int{most/2 + 1}, []int{most/2 + 1 + 2}},
		"held: three":           {true, []int{1, 1, 1}, nil, []int{6}},
		"held: four":            {true, []int{1, 1, 1, 1, 1}, []int{8}, []int{2}},
		"held: 64 KiB together": {true, []int{most / 2, most / 2, 1}, []int{most/2 + 1}, []int{most/2 + 1 + 2}},
	} {
		t.Run(name, func(t *testing.T) {
			pipe := &limitedPipe{room: 1 << 30}
			w := newWriter(io.Discard, Lines)
			w.direct = &partialPipe{pipe, 1 << 30}
			w.flush()
			if test.held {
				w.hold()
			}
			for _, size := range test.frames {
				if err := w.send(transport.Outbound{Frame: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(pipe.sizes, test.sent) {
				t.Errorf("Send has written %d bytes, want %d", pipe.sizes, test.sent)
			}
			if pipe.sizes = nil; test.held {
				if w.flush(); len(pipe.sizes) > 0 {
					t.Errorf("flush has written %d bytes while the writer is held, want none", pipe.sizes)
				}
				w.release()
			}
			if w.flush(); !slices.Equal(pipe.sizes, test.rest) {
				t.Errorf("flush has written %d bytes, want %d", pipe.sizes, test.rest)
			}
			if w.flush(); !slices.Equal(pipe.sizes, test.rest) {
				t.Errorf("after a second flush, %d bytes were written, want no more", pipe.sizes)
			}
		})
	}
}

// Flush writes the frames that were collected.
//
// Guarantees: G-0051.3
func TestFlushWritesWhatWasGathered(t *testing.T) {
	pipe := &limitedPipe{room: 1 << 20}
	w := newWriter(pipe, Lines)
	w.direct = &partialPipe{pipe, 1 << 20}
	w.flush()
	for range fewestGathered - 1 {
		if err := w.send(transport.Outbound{Frame: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	if w.flush(); pipe.calls != 1 || len(pipe.taken) != 2*(fewestGathered-1) {
		t.Fatalf("%d bytes were written in %d writes, want %d in one", len(pipe.taken), pipe.calls, 2*(fewestGathered-1))
	}
}

// After a write of Send has failed, nothing is accepted, and nothing more is written. The error is that of the writer.
//
// Guarantees: G-0014.6, G-0051.2
func TestAWriteOfSendThatFails(t *testing.T) {
	pipe := &limitedPipe{room: 2}
	w := newWriter(writerFunc(func(p []byte) (int, error) {
		t.Errorf("%q is written after an error", p)
		return len(p), nil
	}), Lines)
	w.direct = &partialPipe{pipe, 1 << 20}
	for n, want := range []error{nil, nil, transport.ErrClosed} {
		if err := w.send(transport.Outbound{Tag: transport.Tag(n + 1), Frame: []byte("1")}); err != want {
			t.Errorf("frame %d: got %v, want %v", n+1, err, want)
		}
	}
	w.flush()
	if err := w.run(func() {}); err != io.ErrClosedPipe || pipe.calls != 2 || !slices.Equal(w.unsent(), []transport.Tag{2}) {
		t.Errorf("got %v after %d writes, and %v unsent, want %v after two, and frame 2", err, pipe.calls, w.unsent(), io.ErrClosedPipe)
	}
}

// A full pipe blocks the goroutine of the writer only. All frames arrive in order.
//
// Guarantees: G-0051.1, G-0051.2
func TestSendDoesNotWaitForAFullPipe(t *testing.T) {
	out, in := mustPipe(t)
	defer in.Close()
	defer out.Close()
	w := newWriter(in, Lines)
	ended := make(chan error, 1)
	go func() { ended <- w.run(func() {}) }()
	var sent []byte
	for i := 0; ; i++ {
		frame := bytes.Repeat([]byte{'a' + byte(i%26)}, 1+i*997)
		if err := w.send(transport.Outbound{Frame: frame}); errors.Is(err, transport.ErrBusy) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		sent = append(append(sent, frame...), '\n')
	}
	w.finish()
	out.SetReadDeadline(time.Now().Add(hangGuard))
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(out, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("got %d bytes that differ, %v, want %d equal ones", len(got), err, len(sent))
	}
	if err, _ := receive(t, ended, "end of the writer"); err != nil {
		t.Fatal(err)
	}
}

// A full queue makes Send return ErrBusy. Writable is called once there is room.
//
// Guarantees: G-0014.4, G-0014.5
func TestWritableComesOnceThereIsRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		written := make(chan []byte)
		w := newWriter(writerFunc(func(b []byte) (int, error) {
			written <- bytes.Clone(b)
			return len(b), nil
		}), Lines)
		writable := 0
		ended := make(chan error)
		go func() { ended <- w.run(func() { writable++ }) }()
		for i := range 256 {
			if err := w.send(transport.Outbound{Frame: make([]byte, batchSize)}); err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		if err := w.send(transport.Outbound{Frame: []byte("1")}); !errors.Is(err, transport.ErrBusy) {
			t.Fatalf("frame 257: %v, want %v", err, transport.ErrBusy)
		}
		synctest.Wait()
		if writable != 0 {
			t.Fatal("Writable was called while the queue is full")
		}
		<-written
		synctest.Wait()
		if writable != 1 {
			t.Fatalf("Writable was called %d times after one frame was written, want 1", writable)
		}
		w.abort()
		<-written
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// If two writes on goroutines that send make room before run wakes, Writable is called once, and not never.
//
// Guarantees: G-0007.1, G-0014.5
func TestWritableComesOnceAfterTwoWrites(t *testing.T) {
	w := newWriter(io.Discard, Lines)
	w.direct = &partialPipe{&limitedPipe{}, 0} // full: everything stays in the queue
	for {
		if err := w.send(transport.Outbound{Frame: make([]byte, batchSize)}); errors.Is(err, transport.ErrBusy) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // two writes, which run has not seen
		w.mu.Lock()
		w.fill()
		w.settle(len(w.text) + len(w.tail))
		w.mu.Unlock()
	}
	writable := 0
	w.finish()
	if err := w.run(func() { writable++ }); err != nil || writable != 1 {
		t.Errorf("Writable was called %d times, want once, and run returned %v", writable, err)
	}
}
