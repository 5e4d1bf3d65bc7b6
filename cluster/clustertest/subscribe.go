package clustertest

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// Publish implements cluster.Engine.
func (e *Engine) Publish(subject string, body []byte) error {
	if err := rules.Message(subject, body); err != nil {
		return err
	}
	body = bytes.Clone(body)
	_, err := e.start(context.Background(), Operation{Name: "publish", Subject: subject}, func(f Fault) {
		e.publish(subject, body)
		if f.Double {
			e.publish(subject, body)
		}
		if f.Cut {
			e.cutOff()
		}
	})
	return err
}

func (e *Engine) publish(subject string, body []byte) {
	for _, other := range e.service.engines {
		for _, sub := range other.subscriptions {
			if sub.subject == subject && other != e {
				other.receive(Operation{Name: "message", Subject: subject}, func() { sub.push(bytes.Clone(body)) })
			}
		}
	}
}

// receive lets a message arrive at this Engine, unless a fault decides otherwise.
func (e *Engine) receive(op Operation, arrive func()) {
	if e.cut {
		return
	}
	f := e.fault(op)
	times := 1
	if f.Double {
		times = 2
	}
	for range times {
		if !f.Lose {
			e.down.send(f.Delay, func() {
				e.received.Add(1)
				arrive()
				if f.Cut {
					e.cutOff()
				}
			})
		}
	}
	if f.Lose && f.Cut {
		e.cutOff()
	}
}

// A subscription calls its function on a goroutine of its own.
type subscription struct {
	engine  *Engine
	subject string
	deliver func(cluster.Message)
	stopped chan struct{} // closed by stop
	ended   chan struct{} // closed when deliver is called no more
	once    sync.Once

	// The mutex of the Service guards the rest.
	forgotten bool
	queue     []cluster.Message
	ready     chan struct{} // capacity one: a token when the queue has something
}

// Subscribe implements cluster.Engine.
func (e *Engine) Subscribe(ctx context.Context, subject string, f func(cluster.Message)) (func(), error) {
	if err := rules.Subject(subject); err != nil {
		return nil, err
	}
	sub := &subscription{
		engine: e, subject: subject, deliver: f,
		stopped: make(chan struct{}), ended: make(chan struct{}), ready: make(chan struct{}, 1),
	}
	_, err := call(ctx, e, Operation{Name: "subscribe", Subject: subject}, func() (bool, error) {
		if !sub.forgotten && !slices.Contains(e.subscriptions, sub) {
			e.subscriptions = append(e.subscriptions, sub)
		}
		return true, nil
	})
	if err != nil {
		e.forget(sub)
		return nil, err
	}
	go sub.run()
	return sub.stop, nil
}

func (e *Engine) forget(sub *subscription) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	sub.forgotten = true
	e.subscriptions = slices.DeleteFunc(e.subscriptions, func(other *subscription) bool { return other == sub })
}

func (sub *subscription) run() {
	defer close(sub.ended)
	for {
		select {
		case <-sub.stopped:
			return
		case <-sub.ready:
		}
		for {
			m, any := sub.take()
			if !any {
				break
			}
			select {
			case <-sub.stopped:
				return
			default:
				sub.deliver(m)
			}
		}
	}
}

func (sub *subscription) take() (m cluster.Message, any bool) {
	sub.engine.service.mu.Lock()
	defer sub.engine.service.mu.Unlock()
	if len(sub.queue) == 0 {
		return m, false
	}
	m, sub.queue = sub.queue[0], sub.queue[1:]
	return m, true
}

func (sub *subscription) stop() {
	sub.once.Do(func() {
		sub.engine.forget(sub)
		close(sub.stopped)
	})
	<-sub.ended
}

// push adds a message, or loses it if too many wait.
func (sub *subscription) push(body []byte) {
	if len(sub.queue) >= sub.engine.service.options.Queue {
		sub.miss()
		return
	}
	sub.add(cluster.Message{Body: body})
}

// miss adds that messages may be lost.
func (sub *subscription) miss() {
	if n := len(sub.queue); n == 0 || !sub.queue[n-1].Missed {
		sub.add(cluster.Message{Missed: true})
	}
}

func (sub *subscription) add(m cluster.Message) {
	sub.queue = append(sub.queue, m)
	select {
	case sub.ready <- struct{}{}:
	default: // it has one
	}
}
