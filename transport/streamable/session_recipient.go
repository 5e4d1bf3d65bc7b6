package streamable

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A recipient is the way to the receiver of a session: one call at a time, and
// none after the loss. Only the loss can come before Bind; it is kept until
// then.
type recipient struct {
	mu   sync.Mutex
	to   transport.Receiver
	loss *transport.Loss
}

func (p *recipient) bind(to transport.Receiver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	if p.loss != nil {
		to.Lost(*p.loss)
	}
}

func (p *recipient) bound() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to != nil
}

// tell reports whether the link was not lost before.
func (p *recipient) tell(call func(transport.Receiver)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loss != nil {
		return false
	}
	call(p.to)
	return true
}

func (p *recipient) lose(loss transport.Loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss = &loss
	if p.to != nil {
		p.to.Lost(loss)
	}
}
