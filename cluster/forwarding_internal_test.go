package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// The keys of members are known, and no others: not that of an earlier process of a node, and not
// that of a node that has ended. Who waits for news of a key learns of each change, and of
// nothing else.
//
// Guarantees: G-0077.1
func TestPeersAreTheMembers(t *testing.T) {
	n := Alone(Options{Cluster: "test", Node: "a", Key: make([]byte, KeySize)})
	key := func(of string) string {
		node, _ := n.peers.OfKey(of)
		return node
	}
	var change <-chan struct{}
	update := func(want bool) {
		t.Helper()
		_, change = n.peers.OfKey("")
		n.peers.update(nodePrefix + "b")
		select {
		case <-change:
			if !want {
				t.Error("a change is told, and there was none")
			}
		default:
			if want {
				t.Error("a change is not told")
			}
		}
	}
	n.members["b"] = Member{Name: "b", Certificate: []byte("first")}
	update(true)
	update(false)
	if _, reachable := n.peers.Living("b"); key("first") != "b" || reachable {
		t.Error("a node that does not serve yet is a member without an address")
	}
	n.members["b"] = Member{Name: "b", Certificate: []byte("first"), Address: "b:1"}
	update(true)
	if p, reachable := n.peers.Living("b"); !reachable || p.Address != "b:1" || p.SPKI != "first" {
		t.Errorf("got %+v, want the address", p)
	}
	n.members["b"] = Member{Name: "b", Certificate: []byte("second"), Address: "b:2"}
	update(true)
	if key("first") != "" || key("second") != "b" {
		t.Error("the key of an earlier process is known")
	}
	delete(n.members, "b")
	update(true)
	update(false)
	if _, reachable := n.peers.Living("b"); key("second") != "" || reachable {
		t.Error("a node that has ended is known")
	}
	n.peers.update("srv.x")
	n.peers.update(nodePrefix + "a")
	if _, reachable := n.peers.Living("a"); reachable {
		t.Error("a node is its own peer")
	}
}

// Of two updates at the same time, the one that applies last has read last. Otherwise the hop would
// forget a member for as long as its lease does not change.
//
// Guarantees: G-0077.1
func TestPeersAreReadInOrder(t *testing.T) {
	n := Alone(Options{Cluster: "test", Node: "a", Key: make([]byte, KeySize)})
	n.mu.Lock() // nobody can read members yet
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		n.peers.update(nodePrefix + "b")
	}()
	for began := time.Now(); n.peers.mu.TryLock(); {
		n.peers.mu.Unlock()
		if time.Since(began) > 10*time.Second || wait.Sleep(t.Context(), time.Millisecond) != nil {
			t.Error("an update reads the members while others can be applied")
			break
		}
	}
	n.members["b"] = Member{Name: "b", Certificate: []byte("key"), Address: "b:1"}
	n.mu.Unlock()
	<-updated
	if _, reachable := n.peers.Living("b"); !reachable {
		t.Error("a member is not known")
	}
}

// Who changes the table while the loop is busy is heard when it is not any more: it looks at once, not at its next time.
func TestAChangeOfTheTableIsNotLost(t *testing.T) {
	n := Alone(Options{Cluster: "test", Node: "a", Key: make([]byte, KeySize)})
	for range 3 {
		n.poke()
	}
	select {
	case <-n.kick:
	default:
		t.Error("nobody remembers that the table has changed")
	}
	select {
	case <-n.kick:
		t.Error("changes before the loop looks are remembered one by one")
	default:
	}
}

// An answering node answers each request alike, and calls a function before.
type answering struct {
	status int
	before func()
	closed bool // the body was
}

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	a.before()
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Body: a}, nil
}

func (a *answering) Read([]byte) (int, error) { return 0, io.EOF }

func (a *answering) Close() error {
	a.closed = true
	return nil
}

// An exchange with another node that fails leaves nothing open: its response would be one for ever.
func TestAnExchangeThatFailsIsOver(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	errLeft := errors.New("left")
	for _, c := range []struct {
		to   answering
		want string
	}{
		{answering{status: http.StatusMisdirectedRequest, before: func() {}}, "it answers Misdirected Request"},
		{answering{status: http.StatusOK, before: func() { leave(errLeft) }}, errLeft.Error()},
	} {
		if _, _, err := exchange(ctx, &c.to, "/server/x/mcp"); err == nil || !strings.Contains(err.Error(), c.want) || !c.to.closed {
			t.Errorf("%v, want %q; the body is closed: %t", err, c.want, c.to.closed)
		}
	}
}
