package main

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A receiver is whom a link tells: one call at a time, and none after the loss,
// which is kept when it comes before there is anybody to tell.
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
