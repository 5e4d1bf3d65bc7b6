package conn

import (
	"bytes"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// batchOf has requests of one batch come in on a stream.
func (d *driver) batchOf(b *batch, ids ...int64) (all []*Incoming) {
	for i, id := range ids {
		in := &Incoming{key: incomingKey{3, jsonrpc.IntegerID(id)}, batch: b}
		ev := event{kind: requested, incoming: in, stream: 3, batch: b}
		if i == len(ids)-1 {
			ev.frames, ev.last = 1, true
		}
		d.own(ev)
		all = append(all, in)
	}
	d.forget()
	return all
}

func (d *driver) answerWith(in *Incoming, frame []byte) {
	d.own(event{kind: handled, incoming: in, payload: frame})
}

// Guarantees: G-0019.9, G-0019.5
func TestAnswersOfABatchAreSentTogether(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 4}, 1, 2, 3)
	d.answerWith(all[1], []byte("two"))
	d.wantNothing("one answer of three is there")
	d.own(event{kind: cancelled, incoming: &Incoming{key: all[0].key}})
	d.want(cancelServing)
	d.wantNothing("another answer is due")
	d.answerWith(all[2], []byte("three"))
	if out := d.wantReply(); string(out.frame) != "[two,three]" || !out.last || out.stream != 3 {
		t.Fatalf("%+v", out)
	}
	d.answerWith(all[0], []byte("one"))
	d.wantNothing("a cancelled request is not answered")
}

// The last one that was missing may be cancelled, and a batch without answers is
// not answered.
//
// Guarantees: G-0019.9
func TestABatchOfWhichRequestsAreCancelled(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 3}, 1, 2)
	d.answerWith(all[0], []byte("one"))
	d.own(event{kind: cancelled, incoming: &Incoming{key: all[1].key}})
	d.want(cancelServing)
	if out := d.wantReply(); string(out.frame) != "[one]" || !out.last {
		t.Fatalf("%+v", out)
	}
	d.streamOpened(3, 0)
	all = d.batchOf(&batch{due: 2}, 3)
	d.own(event{kind: cancelled, incoming: &Incoming{key: all[0].key}})
	d.want(cancelServing)
	d.wantEnded(3)
}

// Guarantees: G-0019.9
func TestLongAnswersOfABatch(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 5}, 1, 2, 3, 4)
	half := bytes.Repeat([]byte("x"), maxAnswers/2)
	d.answerWith(all[0], half)
	d.answerWith(all[1], half)
	if out := d.wantReply(); len(out.frame) != 2*len(half)+3 || out.last {
		t.Fatalf("%d bytes, last %v", len(out.frame), out.last)
	}
	d.answerWith(all[2], []byte("three"))
	d.answerWith(all[3], bytes.Repeat([]byte("x"), maxAnswers+1))
	if out := d.wantReply(); len(out.frame) != maxAnswers+1 || out.last {
		t.Fatalf("%d bytes, last %v", len(out.frame), out.last)
	}
	if out := d.wantReply(); string(out.frame) != "[three]" || !out.last {
		t.Fatalf("%+v", out)
	}
}

// The last of the answers ends the stream, however long it is. Main has no end.
//
// Guarantees: G-0019.5, G-0019.9
func TestTheLastAnswersOfABatchEndItsStream(t *testing.T) {
	for _, size := range []int{10, maxAnswers + 1} {
		d := driveAcceptor(t, Options{})
		d.streamOpened(3, 0)
		d.answerWith(d.batchOf(&batch{due: 2}, 1)[0], bytes.Repeat([]byte("x"), size))
		if out := d.wantReply(); !out.last || d.core.streams.find(3) != nil {
			t.Fatalf("%d bytes: last %v", size, out.last)
		}
		b := &batch{due: 2}
		in := &Incoming{key: incomingKey{transport.Main, jsonrpc.IntegerID(1)}, batch: b}
		d.own(event{kind: requested, incoming: in, batch: b, frames: 1, last: true})
		d.forget()
		d.answerWith(in, bytes.Repeat([]byte("x"), size))
		if out := d.wantReply(); out.last {
			t.Fatalf("%d bytes on Main are called the last", size)
		}
	}
}

// Guarantees: G-0019.2, G-0019.9
func TestABatchWhoseStreamIsLostIsNotAnswered(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	all := d.batchOf(&batch{due: 3}, 1, 2)
	d.answerWith(all[0], []byte("one"))
	d.streamLost(3)
	if n := d.count(transmit); n != 0 {
		t.Fatalf("%d frames were sent", n)
	}
}
