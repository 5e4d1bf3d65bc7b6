package embedded

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
)

// A relay passes connections on to a server, until a test stops that.
type relay struct {
	dial func() (net.Conn, error)

	mu      sync.Mutex
	refused bool
	gate    chan struct{} // closed: data passes
	conns   map[net.Conn]bool
	copies  sync.WaitGroup
}

// newRelay returns a relay for the time of a test.
func newRelay(t *testing.T, dial func() (net.Conn, error)) *relay {
	r := &relay{dial: dial, gate: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(r.gate)
	t.Cleanup(func() {
		r.refuse(true)
		r.copies.Wait()
	})
	return r
}

// refuse ends all connections and refuses new ones, or ends that.
func (r *relay) refuse(refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = refused
	if refused {
		for c := range r.conns {
			c.Close()
		}
		r.open()
	}
}

// stall makes connections pass nothing, without a word.
func (r *relay) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
}

// resume ends stall and refuse.
func (r *relay) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = false
	r.open()
}

func (r *relay) open() {
	select {
	case <-r.gate:
	default:
		close(r.gate)
	}
}

// connect is a nats.Options.Dial. What is not read is not buffered.
func (r *relay) connect(context.Context, string, string) (net.Conn, error) {
	server, err := r.dial()
	if err != nil {
		return nil, err
	}
	client, ours := net.Pipe()
	if !r.join(ours, server) {
		client.Close()
		return nil, errors.New("the relay refuses connections")
	}
	return client, nil
}

// listen accepts connections, as a server would.
func (r *relay) listen(t *testing.T, l net.Listener) {
	accepting := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-accepting
	})
	go func() {
		defer close(accepting)
		for {
			ours, err := l.Accept()
			if err != nil {
				return
			}
			server, err := r.dial()
			if err != nil {
				ours.Close()
				continue
			}
			r.join(ours, server)
		}
	}()
}

// join copies between two connections until one of them ends.
func (r *relay) join(a, b net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused {
		a.Close()
		b.Close()
		return false
	}
	r.conns[a], r.conns[b] = true, true
	r.copies.Go(func() { r.copy(a, b) })
	r.copies.Go(func() { r.copy(b, a) })
	return true
}

func (r *relay) copy(from, to net.Conn) {
	defer func() {
		from.Close()
		to.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, from)
	}()
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		<-gate
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
