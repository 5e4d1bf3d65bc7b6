//bowline:pure

package conn

import (
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A batch gathers the answers to the messages of one frame, which are sent together in an array.
// The peer gets one array for the frame unless that becomes too long, and none if no message in
// it needs an answer.
type batch struct {
	due     int    // how many answers are still missing, plus one until the whole frame is read
	answers []byte // the answers so far: an array without its end, or nothing
	parts   []part // what that array consists of
}

// A part is an answer in the array of a batch. It has no frame of its own.
type part struct {
	outboundFrame
	size int // the length of its frame
}

// split returns the answers of an array as frames of their own.
func split(array *outboundFrame) []outboundFrame {
	answers := make([]outboundFrame, len(*array.parts))
	at := len("[")
	for i, p := range *array.parts {
		answers[i] = p.outboundFrame
		answers[i].frame = array.frame[at : at+p.size : at+p.size]
		at += p.size + len(",")
	}
	return answers
}

// maxAnswers is how long the array of a batch may become. Beyond that it is sent,
// and another begins. A longer answer is sent by itself.
const maxAnswers = 4 << 20

// gather takes an answer. When no further one is due it sends the array. Until the whole frame is
// read, one more counts as due, so that an array is not sent while requests of its frame are
// still to come.
func (c *core) gather(out outboundFrame, b *batch) {
	b.due--
	if len(out.frame) > maxAnswers {
		out.last = b.due == 0 && len(b.answers) == 0 && c.streams.isLastReply(out.stream)
		c.send(out)
	} else {
		separator := byte(',')
		if len(b.answers) == 0 {
			separator = '['
		}
		b.answers = append(append(b.answers, separator), out.frame...)
		b.parts = append(b.parts, part{out, len(out.frame)})
		b.parts[len(b.parts)-1].frame = nil
	}
	if b.due == 0 || len(b.answers) > maxAnswers {
		c.sendAnswers(b, out.stream)
	}
}

// leaveBatch notes that the batch waits for one answer less, because a request was
// cancelled, or because the whole frame was read.
func (c *core) leaveBatch(b *batch, stream transport.Stream) {
	if b == nil || c.streams.find(stream) == nil {
		return
	}
	if b.due--; b.due == 0 {
		c.sendAnswers(b, stream)
	}
}

// sendAnswers sends the array so far. The parts go with it: if the link cannot send the array,
// each answer is sent by itself.
func (c *core) sendAnswers(b *batch, stream transport.Stream) {
	if len(b.answers) == 0 {
		return
	}
	parts := b.parts
	out := outboundFrame{stream: stream, frame: append(b.answers, ']'), route: resultRoute(jsonrpc.ID{}), reply: true, parts: &parts}
	b.answers, b.parts = nil, nil
	out.last = b.due == 0 && c.streams.isLastReply(stream)
	c.send(out)
}
