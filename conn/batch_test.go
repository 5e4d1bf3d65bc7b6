package conn

import (
	"bytes"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// batchOf lets the requests of one batch come in on stream 3.
func (d *driver) batchOf(b *batch, ids ...int64) (all []*Incoming) {
	for i, id := range ids {
		in := &Incoming{key: incomingKey{3, jsonrpc.IntegerID(id)}, batch: b}
		ev := event{kind: requested, incoming: in, stream: 3, batch: b}
		if i == len(ids)-1 {
			ev.frames, ev.last = 1, true
		}
		d.stepCurrent(ev)
		all = append(all, in)
	}
	d.dropEffects()
	return all
}

func (d *driver) answerWith(in *Incoming, frame []byte) {
	d.stepCurrent(event{kind: handled, incoming: in, payload: frame})
}

// The answers of a batch are sent in one frame once the last of them is there. A request that
// was cancelled is not waited for, and not answered.
//
// Guarantees: G-0019.9, G-0019.5
func TestAnswersOfABatchAreSentTogether(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 4}, 1, 2, 3)
	d.answerWith(all[1], []byte("two"))
	d.wantNothing("one answer of three has come")
	d.stepCurrent(event{kind: cancelled, incoming: &Incoming{key: all[0].key}})
	d.want(cancelServing)
	d.wantNothing("another answer is awaited")
	d.answerWith(all[2], []byte("three"))
	if out := d.wantReply(); string(out.frame) != "[two,three]" || !out.last || out.stream != 3 {
		t.Fatalf("got %+v, want [two,three] as the last frame on stream 3", out)
	}
	d.answerWith(all[0], []byte("one"))
	d.wantNothing("a cancelled request is not answered")
}

// If the last request without an answer is cancelled, the other answers are sent. If there are none,
// the stream ends without an answer.
//
// Guarantees: G-0019.9
func TestCancelledRequestCompletesItsBatch(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 3}, 1, 2)
	d.answerWith(all[0], []byte("one"))
	d.stepCurrent(event{kind: cancelled, incoming: &Incoming{key: all[1].key}})
	d.want(cancelServing)
	if out := d.wantReply(); string(out.frame) != "[one]" || !out.last {
		t.Fatalf("got %+v, want [one] as the last frame", out)
	}
	d.streamOpened(3, 0)
	all = d.batchOf(&batch{due: 2}, 3)
	d.stepCurrent(event{kind: cancelled, incoming: &Incoming{key: all[0].key}})
	d.want(cancelServing)
	d.wantEnded(3)
}

// Answers of a batch that are longer than maxAnswers together are sent in several frames.
//
// Guarantees: G-0019.9
func TestLongAnswersOfABatchAreSentInParts(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 5}, 1, 2, 3, 4)
	half := bytes.Repeat([]byte("x"), maxAnswers/2)
	d.answerWith(all[0], half)
	d.answerWith(all[1], half)
	if out := d.wantReply(); len(out.frame) != 2*len(half)+3 || out.last {
		t.Fatalf("got %d bytes, last %v; want %d bytes that are not the last", len(out.frame), out.last, 2*len(half)+3)
	}
	d.answerWith(all[2], []byte("three"))
	d.answerWith(all[3], bytes.Repeat([]byte("x"), maxAnswers+1))
	if out := d.wantReply(); len(out.frame) != maxAnswers+1 || out.last {
		t.Fatalf("got %d bytes, last %v; want %d bytes that are not the last", len(out.frame), out.last, maxAnswers+1)
	}
	if out := d.wantReply(); string(out.frame) != "[three]" || !out.last {
		t.Fatalf("got %+v, want [three] as the last frame", out)
	}
}

// The frame with the last answers of a batch ends its stream, however long it is. Main does not end.
//
// Guarantees: G-0019.5, G-0019.9
func TestTheLastAnswersOfABatchEndItsStream(t *testing.T) {
	for _, size := range []int{10, maxAnswers + 1} {
		d := driveAcceptor(t, Options{})
		d.streamOpened(3, 0)
		d.answerWith(d.batchOf(&batch{due: 2}, 1)[0], bytes.Repeat([]byte("x"), size))
		if out := d.wantReply(); !out.last || d.core.streams.find(3) != nil {
			t.Fatalf("%d bytes: last %v, stream %+v; want the last frame and no stream",
				size, out.last, d.core.streams.find(3))
		}
		b := &batch{due: 2}
		in := &Incoming{key: incomingKey{transport.Main, jsonrpc.IntegerID(1)}, batch: b}
		d.stepCurrent(event{kind: requested, incoming: in, batch: b, frames: 1, last: true})
		d.dropEffects()
		d.answerWith(in, bytes.Repeat([]byte("x"), size))
		if out := d.wantReply(); out.last {
			t.Fatalf("%d bytes on Main: last is true, want false", size)
		}
	}
}

// If the stream of a batch is lost, no answer of the batch is sent.
//
// Guarantees: G-0019.2, G-0019.9
func TestABatchWhoseStreamIsLostIsNotAnswered(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 3}, 1, 2)
	d.answerWith(all[0], []byte("one"))
	d.streamLost(3)
	if n := d.count(transmit); n != 0 {
		t.Fatalf("%d frames were sent, want none", n)
	}
}

// If the link cannot send the array of a batch, its answers are sent one by one, and an error
// replaces one that is too large by itself.
//
// Guarantees: G-0019.9
func TestArrayThatIsTooLargeIsSentInParts(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 3}, 1, 2)
	d.answerWith(all[0], []byte("one"))
	d.answerWith(all[1], []byte("two"))
	array := d.wantReply()
	if string(array.frame) != "[one,two]" {
		t.Fatalf("got %s, want [one,two]", array.frame)
	}
	d.stepCurrent(event{kind: failed, out: &array, err: new(transport.OversizedError), unsent: true})
	d.advanceToDeadline()
	one, two := d.wantReply(), d.wantReply()
	if string(one.frame) != "one" || one.last || string(two.frame) != "two" || !two.last || two.stream != 3 {
		t.Fatalf("got %+v and %+v, want one, and two as the last frame on stream 3", one, two)
	}
	d.stepCurrent(event{kind: failed, out: &two, err: new(transport.OversizedError), unsent: true})
	d.advanceToDeadline()
	if out := d.wantReply(); !bytes.Contains(out.frame, []byte(`"error"`)) || !out.last {
		t.Fatalf("got %s, want an error as the last frame", out.frame)
	}
}
