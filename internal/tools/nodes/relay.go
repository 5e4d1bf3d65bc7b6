package nodes

import (
	"net"
	"sync"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Relay passes connections on, until it is stalled: then nothing passes, and neither side is
// told, as if the network were cut.
type Relay struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	gate   chan struct{} // closed: data passes
	links  map[net.Conn]bool
}

// NewRelay returns a Relay to an address, on a free port of this machine.
func NewRelay(to string) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: listener, to: to, gate: make(chan struct{}), links: map[net.Conn]bool{}}
	close(r.gate)
	r.running.Go(r.accept)
	return r, nil
}

// Address returns where the Relay listens.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Stall lets nothing pass.
func (r *Relay) Stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait.IsClosed(r.gate) && !r.closed {
		r.gate = make(chan struct{})
	}
}

// Resume ends Stall. What was sent meanwhile arrives.
func (r *Relay) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !wait.IsClosed(r.gate) {
		close(r.gate)
	}
}

// Close ends all connections.
func (r *Relay) Close() error {
	err := r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for link := range r.links {
		link.Close()
	}
	r.mu.Unlock()
	r.Resume()
	r.running.Wait()
	return err
}

func (r *Relay) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.pass(from) })
	}
}

// pass connects to the other side, and copies until one of them ends.
func (r *Relay) pass(from net.Conn) {
	if !r.add(from) {
		return
	}
	defer r.remove(from)
	<-r.open()
	to, err := net.Dial("tcp", r.to)
	if err != nil || !r.add(to) {
		return
	}
	defer r.remove(to)
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		r.running.Go(func() {
			r.copy(way[0], way[1])
			ended <- struct{}{}
		})
	}
	<-ended
}

func (r *Relay) open() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate
}

func (r *Relay) copy(from, to net.Conn) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		<-r.open() // also before the other side learns of the end
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (r *Relay) add(link net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		link.Close()
		return false
	}
	r.links[link] = true
	return true
}

func (r *Relay) remove(link net.Conn) {
	link.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, link)
}
