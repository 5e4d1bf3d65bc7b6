package main

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A receiver calls the receiver of a link: one call at a time, and none after the loss. If
// the loss comes before bind, the receiver keeps it until then.
type receiver struct {
	mu   sync.Mutex
	to   transport.Receiver
	loss *transport.Loss
}

func (r *receiver) bind(to transport.Receiver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to = to; r.loss != nil {
		to.Lost(*r.loss)
	}
}

func (r *receiver) tell(call func(transport.Receiver)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to != nil && r.loss == nil {
		call(r.to)
	}
}

func (r *receiver) lose(loss transport.Loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loss = &loss; r.to != nil {
		r.to.Lost(loss)
	}
}
