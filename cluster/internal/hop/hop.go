package hop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Peers are the nodes that live. Implementations must be safe for concurrent use.
type Peers interface {
	// Living returns the living node of a name. It returns false for this node.
	Living(node string) (Peer, bool)

	// OfKey returns the name of the living node that has published the hash of a key; "" if
	// there is none. The channel is closed when that may have changed.
	OfKey(spki string) (node string, changed <-chan struct{})
}

// A Peer is one run of a node: after a restart the same node has another key.
type Peer struct {
	Node    string // its name
	Address string // of its Hop, as host:port
	SPKI    string // the SHA-256 hash of its public key, 32 bytes
}

// A Hop is the end of the connections of one node. It is safe for concurrent use.
type Hop struct {
	certificate tls.Certificate
	spki        string
	peers       Peers
	log         *slog.Logger
	door        *door
	buffers     buffers
	counts      counts

	mu       sync.Mutex
	routes   map[string]*route // by node
	outgoing map[*connection]struct{}
	closed   bool
	server   *http.Server  // nil before Listen
	ended    chan struct{} // closed when the server has ended
	failed   error         // of the server; set before ended is closed
}

// counts count since the start. See Stats.
type counts struct {
	forwarded, unsent, unknown, received, refused atomic.Uint64
	open                                          atomic.Int64
}

// Stats is what a Hop has done since it began.
type Stats struct {
	Forwarded uint64 // requests that were sent to other nodes
	Unsent    uint64 // requests that could not be sent, so they were not executed there
	Unknown   uint64 // requests without a response, so nobody knows whether they were executed
	Received  uint64 // requests of other nodes
	Refused   uint64 // connections with a key of no living node
	Open      int    // responses of other nodes that are not over yet
}

// New makes a key. The Hop can send requests at once. Log learns why connections failed, at level
// debug. The caller closes the Hop.
func New(peers Peers, log *slog.Logger) (*Hop, error) {
	certificate, spki, err := newCertificate()
	if err != nil {
		return nil, err
	}
	h := &Hop{
		certificate: certificate, spki: spki, peers: peers, log: log,
		routes: make(map[string]*route), outgoing: make(map[*connection]struct{}),
	}
	h.door = &door{hop: h, mounted: make(map[string]http.Handler)}
	return h, nil
}

// SPKI returns the SHA-256 hash of this node's public key, 32 bytes.
func (h *Hop) SPKI() string { return h.spki }

// Listen begins to serve other nodes on an address, host:port. An empty host means all addresses
// of the machine, and port 0 a random one. Listen returns the address at which other nodes reach
// this one: advertise, with the port of the listener if its own is missing or 0. If advertise is
// empty, it is the address of the listener. Listen is called once.
func (h *Hop) Listen(address, advertise string) (reachable string, err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("cluster: listen for other nodes: %w", err)
	}
	if reachable, err = advertised(advertise, listener.Addr()); err == nil {
		err = h.serve(listener)
	}
	if err != nil {
		listener.Close()
	}
	return reachable, err
}

// ErrClosed says that Close was called.
var ErrClosed = errors.New("cluster: the node is closed")

// serve begins to serve a listener.
func (h *Hop) serve(listener net.Listener) error {
	strangers := &strangers{Listener: listener, all: make(map[*stranger]struct{})}
	secure := tls.NewListener(strangers, fromPeers(h.certificate, func(ctx context.Context, c net.Conn, spki string) error {
		if !h.awaitKey(ctx, spki) {
			h.counts.refused.Add(1)
			return &KeyError{SPKI: spki}
		}
		strangers.admit(c)
		return nil
	}))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	server, ended := newServer(h.door, h.log), make(chan struct{})
	h.server, h.ended = server, ended
	go func() {
		defer close(ended)
		if err := server.Serve(secure); !errors.Is(err, http.ErrServerClosed) {
			h.failed = fmt.Errorf("cluster: serve other nodes: %w", err)
		}
	}()
	return nil
}

// advertised returns the address to publish.
func advertised(wanted string, listening net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", fmt.Errorf("cluster: the address for other nodes: %w", err)
	}
	if wanted == "" {
		wanted = listening.String()
	}
	host, given, err := net.SplitHostPort(wanted)
	if err != nil { // without a port
		host, given = wanted, port
	}
	if given == "0" {
		given = port
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("cluster: other nodes cannot reach the address %q: say which one to advertise", wanted)
	}
	return net.JoinHostPort(host, given), nil
}

// awaitKey reports whether a key is that of a living node. If it is unknown, awaitKey waits for
// news of a new node.
func (h *Hop) awaitKey(ctx context.Context, spki string) bool {
	ctx, cancel := context.WithTimeout(ctx, newsPatience)
	defer cancel()
	for {
		node, changed := h.peers.OfKey(spki)
		if node != "" {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Mount has handler serve the requests of other nodes to a path and to everything below it. The
// handler sees the request as the first node has received it, without that path. It replaces the
// handler that the path had.
func (h *Hop) Mount(path string, handler http.Handler) { h.door.mount(path, handler) }

// Stats returns what the Hop has done since it began.
func (h *Hop) Stats() Stats {
	c := &h.counts
	return Stats{
		Forwarded: c.forwarded.Load(), Unsent: c.unsent.Load(), Unknown: c.unknown.Load(),
		Received: c.received.Load(), Refused: c.refused.Load(), Open: int(c.open.Load()),
	}
}

// Close refuses further connections and waits until the requests of other nodes are over, at most
// until ctx ends; then it cuts them off, and the error says so. Afterwards it ends the connections
// to other nodes: those of this node's own requests, which should be over by then.
func (h *Hop) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	server := h.server
	h.mu.Unlock()
	var err error
	if server != nil {
		if err = server.Shutdown(ctx); err != nil {
			err = fmt.Errorf("cluster: requests of other nodes were cut off: %w", errors.Join(err, server.Close()))
		}
		<-h.ended
		err = errors.Join(err, h.failed)
	}
	h.cutOff()
	return err
}

func (h *Hop) cutOff() {
	h.mu.Lock()
	all := h.outgoing
	h.outgoing = nil
	h.mu.Unlock()
	for c := range all {
		c.Conn.Close()
	}
}

const (
	// newsPatience is how long a connection waits for news that its node lives: a node that
	// has just begun may be faster than the news of it.
	newsPatience = time.Second

	// handshakePatience is the maximum time for the TLS handshake of a connection.
	handshakePatience = 5 * time.Second

	// dialPatience is the maximum time until a connection can be used. After that the node
	// counts as unreachable.
	dialPatience = 3 * time.Second

	// knockPatience is how long Gone waits for an answer.
	knockPatience = time.Second

	// A connection on which nothing has arrived for silence is checked by a ping, and closed
	// if no answer comes within pingPatience, or if nothing can be written for pingPatience.
	silence      = 10 * time.Second
	pingPatience = 5 * time.Second

	// An unused connection is closed after idleOutgoing by the node that has made it. The
	// other node waits longer, so a request never meets a connection that is being closed.
	idleOutgoing = 90 * time.Second
	idleIncoming = 2 * time.Minute

	// maxStreams is how many requests a node accepts on one connection. net/http assumes this
	// number until it has read the other side's. maxOpen is how many another node makes: some
	// fewer, since a request that was cancelled counts until the other side has answered.
	maxStreams = 100
	maxOpen    = 90

	// bodyWindow is how much of a request's body may be underway. All streams of a connection
	// together fit in its window, so none waits for another one.
	bodyWindow       = 40 << 10
	connectionWindow = maxStreams * bodyWindow // below 4 MiB, as net/http requires

	// responseWindow is how much of a response may be underway.
	responseWindow = 256 << 10

	// maxHeader limits the headers of a request: 1 MiB, the limit of the first node, and room
	// for what it adds.
	maxHeader = 1<<20 + 64<<10

	// maxStrangers limits the connections that have not shown their key yet. If another one
	// comes, the oldest is closed.
	maxStrangers = 128
)
