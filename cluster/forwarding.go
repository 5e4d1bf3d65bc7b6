package cluster

import (
	"cmp"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/cluster/internal/hop"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// openHop makes the key of this node for its connections to others.
func (n *Node) openHop() (err error) {
	if n.hop, err = hop.New(&n.peers, n.log); err != nil {
		return err
	}
	n.spki = []byte(n.hop.SPKI())
	n.onReport(func(r *Report) { r.Hop = HopReport(n.hop.Stats()) })
	return nil
}

// Serve begins to serve the requests that other nodes forward to this one, announces its address
// to them, and returns. Give it the whole handler of the program, with its middleware, before the
// program serves clients. The handler finds path, host, headers, credentials and addresses as the
// first node has received them, and checks them again. A client certificate is not passed on: the
// TLS state of a request that came by TLS has none. Until Serve is called, other nodes forward
// nothing to this one. Call it once.
func (n *Node) Serve(h http.Handler) error {
	return n.mount(hop.SessionPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, streamable.Forwarded(r))
	}))
}

// mount has h serve the requests that other nodes send to a path with roundTripper, and below it.
// It does not see the path. The first mount begins to listen for other nodes.
func (n *Node) mount(path string, h http.Handler) error {
	n.hop.Mount(path, h)
	n.listening.Lock()
	defer n.listening.Unlock()
	if n.listens {
		return nil
	}
	address := cmp.Or(n.options.Hop, net.JoinHostPort(n.engine.LocalAddress(), "0"))
	advertise := n.options.Advertise
	if host, _, err := net.SplitHostPort(address); err == nil && host == "" && advertise == "" {
		advertise = n.engine.LocalAddress()
	}
	reachable, err := n.hop.Listen(address, advertise)
	if err != nil {
		return err
	}
	n.listens = true
	n.announce(reachable)
	return nil
}

// roundTripper returns what sends requests to a node: to what is mounted there at the path of the
// request. Scheme and host of its URL do not matter. It returns nil if the node is not a member,
// and for this node. If no connection could be made, the error contains the *net.OpError of a
// dial: then the request was not sent.
func (n *Node) roundTripper(node string) http.RoundTripper { return n.hop.RoundTripper(node) }

// Router returns the router for HandlerOptions.Router. It forwards requests to members directly,
// by HTTP/2 over TLS 1.3, and does not wait for the Engine. If a request was not sent, since the node cannot be reached, the response is
// 421, and the Handler then looks for the session elsewhere. If it was sent and not answered, the
// response to the client is 502: nobody knows whether it was executed.
func (n *Node) Router() streamable.Router { return router{n} }

type router struct{ node *Node }

// Node implements streamable.Router.
func (r router) Node() string { return r.node.options.Node }

// Reach implements streamable.Router.
func (r router) Reach(session string) http.Handler { return r.ReachNode(streamable.NodeOf(session)) }

// ReachNode implements streamable.Router.
func (r router) ReachNode(node string) http.Handler {
	if to := r.node.hop.To(node); to != nil {
		return to
	}
	return nil
}

// Another implements streamable.Router. Nodes that drain are not named.
func (r router) Another(session string, tried ...string) string {
	return nodename.Choose(session, func(yield func(string) bool) {
		for _, m := range r.node.Members() {
			if m.Name != r.Node() && !m.Draining && m.Address != "" && !yield(m.Name) {
				return
			}
		}
	}, tried)
}

// A HopReport is what a node has done with requests of sessions and servers that are at other
// nodes, since it started.
type HopReport struct {
	Forwarded uint64 `json:"forwarded"` // requests for other nodes
	Unsent    uint64 `json:"unsent"`    // of these: not sent, since the other node could not be reached
	Unknown   uint64 `json:"unknown"`   // of these: sent, and not answered
	Received  uint64 `json:"received"`  // requests of other nodes
	Refused   uint64 `json:"refused"`   // connections whose key is that of no member
	Open      int    `json:"open"`      // responses of other nodes that are not over yet
}

// peers are the other members, as the hop needs them. It implements hop.Peers.
type peers struct {
	node *Node

	mu      sync.Mutex
	all     map[string]hop.Peer // by name
	byKey   map[string]string   // names
	changed wait.Changes
}

func newPeers(n *Node) peers {
	return peers{node: n, all: map[string]hop.Peer{}, byKey: map[string]string{}}
}

// Living implements hop.Peers.
func (p *peers) Living(node string) (hop.Peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.all[node]
	return found, found.Address != ""
}

// OfKey implements hop.Peers.
func (p *peers) OfKey(spki string) (node string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byKey[spki], p.changed.Next()
}

// update looks at a lease that has changed.
func (p *peers) update(key string) {
	name, isNode := strings.CutPrefix(key, nodePrefix)
	if !isNode || name == p.node.options.Node {
		return
	}
	p.mu.Lock() // what is read last is applied last
	defer p.mu.Unlock()
	m, lives := p.node.Member(name)
	now := hop.Peer{Node: name, Address: m.Address, SPKI: string(m.Certificate)}
	before, lived := p.all[name]
	if lived == lives && (!lives || before == now) {
		return
	}
	delete(p.all, name)
	delete(p.byKey, before.SPKI)
	if lives {
		p.all[name], p.byKey[now.SPKI] = now, name
	}
	p.changed.Announce()
}
