package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// Two servers that share their changes. A client of one learns of a resource that has changed
// at the other. Over a network, Publish sends to a broker, and Subscribe receives from it.
func ExampleChanges() {
	nodes := new(localChanges)
	newServer := func() *server.Server {
		s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{
			Changes:     nodes.join(),
			OnSubscribe: func(context.Context, string) error { return nil },
		})
		server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config"},
			func(context.Context) (string, error) { return "blue", nil })
		return s
	}
	here, there := newServer(), newServer()
	defer there.Close(context.Background())

	use(here, client.Options{}, func(ctx context.Context, session *client.Session) error {
		times := 0
		for _, err := range session.Watch(ctx, "config://app") {
			if err != nil {
				return err
			}
			if times++; times == 2 {
				fmt.Println("changed")
				break
			}
			there.ResourceUpdated("config://app")
		}
		return nil
	})
	// Output: changed
}

// localChanges carries changes between servers in one process.
type localChanges struct {
	mu    sync.Mutex
	nodes []*localNode
}

// A localNode is the Changes of one server. It has a queue, so that Publish never waits.
type localNode struct {
	all     *localChanges
	changes chan server.Change
	missed  chan struct{} // holds one element if the queue had no room
}

// join returns the Changes of another server.
func (l *localChanges) join() server.Changes {
	return &localNode{l, make(chan server.Change, 100), make(chan struct{}, 1)}
}

func (n *localNode) Publish(c server.Change) {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	for _, other := range n.all.nodes {
		if other == n {
			continue
		}
		select {
		case other.changes <- c:
		default:
			select {
			case other.missed <- struct{}{}:
			default: // it will be told already
			}
		}
	}
}

func (n *localNode) Subscribe(f func(server.Change)) (stop func()) {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	n.all.nodes = append(n.all.nodes, n)
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case c := <-n.changes:
				f(c)
			case <-n.missed:
				f(server.Change{Missed: true})
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		n.all.mu.Lock()
		n.all.nodes = slices.DeleteFunc(n.all.nodes, func(other *localNode) bool { return other == n })
		n.all.mu.Unlock()
		close(stopped)
		<-ended
	}
}
