package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Options say which nodes Start starts.
type Options struct {
	Nodes int // how many; default 3

	// Command returns the command of a node, which serves HTTP, and prints a line with
	// "serving URL" to standard error when it does.
	Command func(node int) (*exec.Cmd, error)

	// Together says that the nodes wait for each other, and are started at the same time.
	Together bool

	// Ended is called when a node has ended. Nil: nothing is.
	Ended func(node int)

	// Log receives what the nodes print, each line with the number of its node. Nil drops it.
	Log io.Writer
}

// Nodes are running processes that serve one endpoint, and the Balancer in front of them.
type Nodes struct {
	*Balancer
	options Options
	server  *http.Server
	url     string
	served  chan error

	mu    sync.Mutex
	nodes []*process
	log   sync.Mutex
}

// A process is a running node.
type process struct {
	command *exec.Cmd
	url     *url.URL
	ended   chan struct{} // closed when the process has ended, and all it printed was read
	err     error
	last    string // the last line that it printed
}

// Start starts the nodes, one after the other by default, and a Balancer on a free port of this machine.
// If one of them does not begin to serve before ctx ends, all are stopped.
func Start(ctx context.Context, o Options) (*Nodes, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &Nodes{Balancer: NewBalancer(o.Nodes), options: o, nodes: make([]*process, o.Nodes), served: make(chan error, 1)}
	n.server = &http.Server{Handler: n.Balancer}
	n.url = "http://" + listener.Addr().String()
	go func() { n.served <- n.server.Serve(listener) }()
	if err := n.startAll(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Nodes) startAll(ctx context.Context) error {
	errs := make([]error, n.options.Nodes)
	var starting sync.WaitGroup
	for i := range errs {
		starting.Go(func() { errs[i] = n.StartNode(ctx, i) })
		if !n.options.Together {
			starting.Wait()
		}
	}
	starting.Wait()
	return errors.Join(errs...)
}

// URL returns the URL of the endpoint at the Balancer.
func (n *Nodes) URL() string { return n.url + "/mcp" }

// StartNode starts a node that has ended, and waits until it serves.
func (n *Nodes) StartNode(ctx context.Context, node int) error {
	command, err := n.options.Command(node)
	if err != nil {
		return err
	}
	lines, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	p := &process{command: command, ended: make(chan struct{})}
	serving := make(chan *url.URL, 1)
	go func() {
		n.read(node, p, lines, serving)
		p.err = command.Wait()
		if n.options.Ended != nil {
			n.options.Ended(node)
		}
		close(p.ended)
	}()
	n.mu.Lock()
	n.nodes[node] = p
	n.mu.Unlock()
	select {
	case p.url = <-serving:
		n.Set(node, p.url)
		return nil
	case <-p.ended:
		return fmt.Errorf("node %d has ended: %w: %s", node, p.err, p.last)
	case <-ctx.Done():
		_ = command.Process.Kill()
		<-p.ended
		return fmt.Errorf("node %d does not serve: %w: %s", node, context.Cause(ctx), p.last)
	}
}

// read reads what a node prints until it ends.
func (n *Nodes) read(node int, p *process, from io.Reader, serving chan<- *url.URL) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		p.last = lines.Text()
		if n.options.Log != nil {
			n.log.Lock()
			fmt.Fprintf(n.options.Log, "node %d: %s\n", node, p.last)
			n.log.Unlock()
		}
		if _, at, found := strings.Cut(p.last, "serving "); found && serving != nil {
			if parsed, err := url.Parse(at); err == nil {
				serving <- parsed // it has room for the only one
				serving = nil
			}
		}
	}
	_, _ = io.Copy(io.Discard, from) // after a line that is too long
}

// Signal sends a signal to a node.
func (n *Nodes) Signal(node int, signal os.Signal) error {
	return n.process(node).command.Process.Signal(signal)
}

// NodeURL returns where a node serves, without the Balancer.
func (n *Nodes) NodeURL(node int) string { return n.process(node).url.String() }

func (n *Nodes) process(node int) *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[node]
}

// Wait waits until a node has ended, and returns its exit error.
func (n *Nodes) Wait(node int) error {
	p := n.process(node)
	<-p.ended
	return p.err
}

// Kill kills a node, as kill -9 does, and waits for its end.
func (n *Nodes) Kill(node int) error {
	if err := n.Signal(node, os.Kill); err != nil {
		return err
	}
	_ = n.Wait(node) // it says that the process was killed
	return nil
}

// Close kills what still runs, and closes the Balancer.
func (n *Nodes) Close() error {
	for node := range n.options.Nodes {
		if p := n.process(node); p != nil {
			_ = p.command.Process.Kill() // it may have ended
			<-p.ended
		}
	}
	err := n.server.Close()
	if served := <-n.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	n.Balancer.Close()
	return err
}
