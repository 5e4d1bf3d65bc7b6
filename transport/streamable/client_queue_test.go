package streamable

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

func queued(size int) *outgoing {
	return &outgoing{Outbound: transport.Outbound{Frame: make([]byte, size)}}
}

// The queue returns messages in order, and keeps nothing of them.
func TestClientQueueHandsOutTheOldest(t *testing.T) {
	var q clientQueue
	if q.pop() != nil {
		t.Error("got a message of an empty queue, want none")
	}
	for range 3 {
		all := []*outgoing{queued(1), queued(2), queued(3)}
		for _, o := range all {
			if !q.push(o) {
				t.Fatal("got no place for a small message, want one")
			}
		}
		room := q.waiting
		for _, o := range all {
			if q.pop() != o {
				t.Fatal("got another message, want the oldest")
			}
			q.release(o)
		}
		for i, left := range room {
			if left != nil {
				t.Errorf("the queue still holds message %d, want it released", i)
			}
		}
		if q.pop() != nil || q.frames != 0 || q.bytes != 0 {
			t.Errorf("%d frames and %d bytes are counted in an empty queue, want none", q.frames, q.bytes)
		}
	}
	o := queued(1)
	q.push(o)
	if &q.waiting[0] != &q.one[0] {
		t.Error("a queue with one message has allocated, want its own array")
	}
}

// The number of frames in the queue is limited. Their places are free again after
// release.
func TestClientQueueIsBoundedInFrames(t *testing.T) {
	var q clientQueue
	for n := range parts.DefaultFrames {
		if !q.push(queued(1)) {
			t.Fatalf("got no place for frame %d, want one", n)
		}
	}
	if q.push(queued(1)) {
		t.Fatal("got a place for a frame too many, want none")
	}
	first := q.pop()
	if q.push(queued(1)) {
		t.Error("got a place before a message was released, want none")
	}
	if !q.release(first) {
		t.Error("release reported no room, want room after a refusal")
	}
	if q.release(first) || q.frames != parts.DefaultFrames-1 {
		t.Errorf("a second release counted: %d frames", q.frames)
	}
	if q.release(q.pop()) {
		t.Error("release reported room without a refusal")
	}
}

// The bytes in the queue are limited, but a frame of any size fits into an empty queue.
func TestClientQueueIsBoundedInBytes(t *testing.T) {
	var q clientQueue
	large := queued(parts.DefaultBytes + 1)
	if !q.push(large) {
		t.Fatal("got no place in an empty queue, want one for any size")
	}
	if q.push(queued(0)) {
		t.Error("got a place above the limit of bytes, want none")
	}
	q.pop()
	if !q.release(large) {
		t.Error("release reported no room, want room after a refusal")
	}
	half, rest := queued(parts.DefaultBytes/2), queued(parts.DefaultBytes-parts.DefaultBytes/2)
	if !q.push(half) || q.push(queued(len(rest.Frame)+1)) || !q.push(rest) {
		t.Fatal("got no place for exactly the limit of bytes, want one")
	}
	small := queued(0)
	if !q.push(small) {
		t.Fatal("got no place for an empty frame, want one")
	}
	if q.release(small) || q.release(rest) { // the refused frame is larger by a byte
		t.Error("release reported room that is too small")
	}
	if !q.release(half) {
		t.Error("release reported no room, want room after a refusal")
	}
}

// A message is modern if it names its revision.
func TestMessageThatNamesItsRevisionIsModern(t *testing.T) {
	o := queued(1)
	if o.modern() {
		t.Error("a message without a revision is modern")
	}
	if o.Route.Version = "2026-07-28"; !o.modern() {
		t.Error("a message with a revision is not modern")
	}
}
