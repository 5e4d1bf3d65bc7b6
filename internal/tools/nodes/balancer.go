// Package nodes runs several nodes of one endpoint as processes, behind a balancer that sends
// each request to the next of them. Tests stop, kill and restart the nodes.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// A Balancer sends each request to the next node, and leaves out a node that refuses the
// connection. It changes nothing else: what a node answers, or that it breaks off, reaches the
// client. It opens a connection for every request, so that no request is sent on one that has
// ended without anybody noticing.
type Balancer struct {
	proxy  httputil.ReverseProxy
	direct http.Transport

	mu    sync.Mutex
	nodes []*url.URL // nil: the node is not there
	turn  int
	sent  map[string]int // requests by the host of the node that took them
}

// NewBalancer returns a Balancer for so many nodes, none of which is there yet.
func NewBalancer(nodes int) *Balancer {
	b := &Balancer{nodes: make([]*url.URL, nodes), sent: make(map[string]int)}
	b.direct.DisableKeepAlives = true
	b.direct.DisableCompression = true
	b.proxy = httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host; r.SetXForwarded() },
		Transport:     roundTripper(b.send),
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // that a node has broken off is what the client sees
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return b
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Set says where a node is. Nil takes it out.
func (b *Balancer) Set(node int, at *url.URL) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[node] = at
}

// Sent returns how many requests each node took, by its host.
func (b *Balancer) Sent() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := make(map[string]int, len(b.sent))
	for host, n := range b.sent {
		sent[host] = n
	}
	return sent
}

// ServeHTTP implements http.Handler.
func (b *Balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.proxy.ServeHTTP(w, r) }

// Close closes what is idle. Requests under way go on.
func (b *Balancer) Close() { b.direct.CloseIdleConnections() }

// next returns the nodes in the order in which a request tries them.
func (b *Balancer) next() (order []*url.URL) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	for i := range b.nodes {
		if node := b.nodes[(b.turn+i)%len(b.nodes)]; node != nil {
			order = append(order, node)
		}
	}
	return order
}

var errNobody = errors.New("no node accepts connections")

// send sends a request to the first node that does not refuse the connection. Of a request
// whose connection was refused nothing was read, so another node gets all of it.
func (b *Balancer) send(r *http.Request) (*http.Response, error) {
	body := r.Body // which the ReverseProxy closes when it has passed on the answer
	err := errNobody
	for _, node := range b.next() {
		try := r.Clone(r.Context())
		try.URL.Scheme, try.URL.Host = node.Scheme, node.Host
		if body != nil {
			// net/http closes the body when the answer begins, and a transport that then looks for the end of
			// the body would break off the answer.
			try.Body = io.NopCloser(io.LimitReader(body, r.ContentLength))
			if r.ContentLength < 0 {
				try.Body = io.NopCloser(body)
			}
		}
		var response *http.Response
		response, err = b.direct.RoundTrip(try)
		if err == nil {
			b.count(node.Host)
			return response, nil
		}
		if !isDial(err) || r.Context().Err() != nil {
			return nil, fmt.Errorf("node %s: %w", node.Host, err)
		}
	}
	return nil, err
}

func (b *Balancer) count(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent[host]++
}

// isDial reports whether there was no connection at all.
func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" && !errors.Is(err, context.Canceled)
}
