package fault

import (
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// forget ends a stream of which nothing is to be told any more.
func (p *pump) forget(stream transport.Stream) {
	delete(p.lanes, stream)
	p.held = slices.DeleteFunc(p.held, func(l late) bool { return l.stream == stream })
}

// resume goes on with a stream that was cut here, or has the wrapped link do so.
func (p *pump) resume(stream transport.Stream) {
	switch lane := p.lanes[stream]; {
	case lane == nil:
	case lane.cut:
		lane.cut = false
	default:
		p.out.resume(stream)
	}
}

// fail tells that a message has failed, behind what came on the stream that it
// has opened.
func (p *pump) fail(a arrival) {
	for stream, lane := range p.lanes {
		if lane.tag != 0 && lane.tag == a.failure.Tag {
			p.overtakeNothing(stream)
			a.stream = stream
			p.ready(a)
			return
		}
	}
	p.to.Failed(a.failure)
}

// loseStream ends a stream with a frame, for the receiver and the wrapped link.
func (p *pump) loseStream(l *lane, a arrival, why error) {
	p.out.end(a.stream)
	p.overtakeNothing(a.stream)
	p.ready(lossOf(a.stream, transport.StreamLoss{Reason: why}))
	l.muted = true
}

// cutStream has a stream wait before a frame until it is resumed.
func (p *pump) cutStream(a arrival, why error, delay time.Duration) {
	p.overtakeNothing(a.stream)
	loss := lossOf(a.stream, transport.StreamLoss{Reason: why, Resumable: true, Delay: delay})
	loss.cut = true
	p.ready(loss)
	p.ready(a)
}

func lossOf(stream transport.Stream, loss transport.StreamLoss) arrival {
	loss.Stream = stream
	return arrival{kind: streamLost, stream: stream, streamLoss: loss}
}
