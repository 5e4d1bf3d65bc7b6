package streamable

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

func queued(size int) *outgoing {
	return &outgoing{Outbound: transport.Outbound{Frame: make([]byte, size)}}
}

func TestClientQueueHandsOutTheOldest(t *testing.T) {
	var q clientQueue
	if q.pop() != nil {
		t.Error("an empty queue has a message")
	}
	for range 3 {
		all := []*outgoing{queued(1), queued(2), queued(3)}
		for _, o := range all {
			if !q.push(o) {
				t.Fatal("a small message does not fit")
			}
		}
		room := q.waiting
		for _, o := range all {
			if q.pop() != o {
				t.Fatal("it is not the oldest")
			}
			q.release(o)
		}
		for i, left := range room {
			if left != nil {
				t.Errorf("message %d is kept after it was handed out", i)
			}
		}
		if q.pop() != nil || q.frames != 0 || q.bytes != 0 {
			t.Errorf("%d frames and %d bytes are held by nothing", q.frames, q.bytes)
		}
	}
	o := queued(1)
	q.push(o)
	if &q.waiting[0] != &q.one[0] {
		t.Error("the only message has no room in the queue itself")
	}
}

func TestClientQueueIsBoundedInFrames(t *testing.T) {
	var q clientQueue
	for n := range queue.DefaultFrames {
		if !q.push(queued(1)) {
			t.Fatalf("frame %d does not fit", n)
		}
	}
	if q.push(queued(1)) {
		t.Fatal("a frame too many fits")
	}
	first := q.pop()
	if q.push(queued(1)) {
		t.Error("a message has given its room back before it was released")
	}
	if !q.release(first) {
		t.Error("that there is room again was not told")
	}
	if q.release(first) || q.frames != queue.DefaultFrames-1 {
		t.Errorf("a message was released twice: %d frames", q.frames)
	}
	if q.release(q.pop()) {
		t.Error("it was told without a refusal")
	}
}

func TestClientQueueIsBoundedInBytes(t *testing.T) {
	var q clientQueue
	large := queued(queue.DefaultBytes + 1)
	if !q.push(large) {
		t.Fatal("a frame of any size fits an empty queue")
	}
	if q.push(queued(0)) {
		t.Error("the queue holds more than its bytes")
	}
	q.pop()
	if !q.release(large) {
		t.Error("that there is room again was not told")
	}
	half, rest := queued(queue.DefaultBytes/2), queued(queue.DefaultBytes-queue.DefaultBytes/2)
	if !q.push(half) || q.push(queued(len(rest.Frame)+1)) || !q.push(rest) {
		t.Fatal("exactly its bytes fit")
	}
	small := queued(0)
	if !q.push(small) {
		t.Fatal("a frame of no bytes fits")
	}
	if q.release(small) || q.release(rest) { // what was refused is larger by a byte
		t.Error("it was told of room that is not there")
	}
	if !q.release(half) {
		t.Error("that there is room again was not told")
	}
}

func TestClientQueueNamesMessages(t *testing.T) {
	o := queued(1)
	if o.label() != "a response" || o.modern() {
		t.Errorf("a response is %q", o.label())
	}
	o.Route.Method, o.Route.Version = "ping", "2026-07-28"
	if o.label() != "ping" || !o.modern() {
		t.Errorf("a request is %q", o.label())
	}
}
