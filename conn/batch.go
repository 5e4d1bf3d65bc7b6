//bowline:pure

package conn

import (
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A batch gathers the answers to the messages of one frame, which are sent together
// in an array.
type batch struct {
	due     int    // answers to come, and one for the rest of the frame
	answers []byte // so far: an array without its end, or nothing
}

// maxAnswers is how long the array of a batch may become. Beyond that it is sent,
// and another begins. A longer answer is sent by itself.
const maxAnswers = 4 << 20

// gather takes an answer. When no further one is due it sends the array.
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
	}
	if b.due == 0 || len(b.answers) > maxAnswers {
		c.sendAnswers(b, out.stream)
	}
}

// leaveBatch notes that one answer less is due: of a request that was cancelled, or
// that of the frame itself, which has been read as a whole.
func (c *core) leaveBatch(b *batch, stream transport.Stream) {
	if b == nil || c.streams.find(stream) == nil {
		return
	}
	if b.due--; b.due == 0 {
		c.sendAnswers(b, stream)
	}
}

func (c *core) sendAnswers(b *batch, stream transport.Stream) {
	if len(b.answers) == 0 {
		return
	}
	out := outboundFrame{stream: stream, frame: append(b.answers, ']'), route: resultRoute(jsonrpc.ID{}), reply: true}
	b.answers = nil
	out.last = b.due == 0 && c.streams.isLastReply(stream)
	c.send(out)
}
