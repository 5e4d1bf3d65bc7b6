package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats/embedded"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A place is which node serves a session, seen from its client.
type place int

const (
	ownNode   place = iota // the node at which the requests arrive
	proxied                // a server behind a bare httputil.ReverseProxy
	otherNode              // another node of the cluster
)

// clustered is a client of a cluster of two nodes in one child. They share a NATS server, which
// runs in the child, too.
func clustered(at place) implementation {
	return implementation{
		http: bowline(echoTool).http,
		serveHTTP: func(listener net.Listener) error {
			ctx, folder := context.Background(), os.TempDir() // the parent removes it
			owner, err := joinCluster(ctx, folder, "a")
			if err != nil {
				return err
			}
			if at == ownNode {
				return owner.handler.Serve(ctx, &http.Server{Handler: owner.handler}, listener)
			}
			if at == proxied {
				proxy, err := newProxy(owner.handler)
				if err != nil {
					return err
				}
				return http.Serve(listener, proxy)
			}
			other, err := joinCluster(ctx, folder, "b")
			if err != nil {
				return err
			}
			return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Session-Id") == "" { // a new session begins at its node
					owner.handler.ServeHTTP(w, r)
					return
				}
				other.handler.ServeHTTP(w, r)
			}))
		},
	}
}

// A clusterNode is a server that is a node of a cluster.
type clusterNode struct {
	engine  cluster.Engine
	node    *cluster.Node
	handler *streamable.Handler
}

// joinCluster makes a node. The first of a folder runs the NATS server.
func joinCluster(ctx context.Context, folder, name string) (*clusterNode, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	engine, err := embedded.Join(ctx, embedded.Options{Folder: filepath.Join(folder, "nats"), Cluster: "bench", Log: quiet})
	if err != nil {
		return nil, err
	}
	n := &clusterNode{engine: engine}
	n.node, err = cluster.Join(ctx, engine, cluster.Options{
		Cluster: "bench", Node: name, Key: make([]byte, cluster.KeySize), Hop: "127.0.0.1:0", Log: quiet,
	})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	n.handler = streamable.NewHandler(newBowlineServer(serving{}), streamable.HandlerOptions{
		Router: n.node.Router(), Sessions: n.node.Sessions(),
	})
	return n, n.node.Serve(n.handler)
}

func (n *clusterNode) close(ctx context.Context) error {
	return errors.Join(n.handler.Close(0), n.node.Close(ctx), n.engine.Close())
}

// newProxy returns a reverse proxy of the standard library to a handler, by HTTP/2 over mutual TLS
// 1.3, as nodes use among themselves. Both live until the process ends.
func newProxy(to http.Handler) (http.Handler, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificates := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	site := httptest.NewUnstartedServer(to)
	site.EnableHTTP2 = true
	site.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: certificates, ClientAuth: tls.RequireAnyClientCert}
	site.StartTLS()
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", site.Listener.Addr().String(), r.In.Host
		},
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS13, Certificates: certificates, InsecureSkipVerify: true},
			ForceAttemptHTTP2: true, DisableCompression: true,
		},
	}, nil
}

const opened = "initialize and close"

// clusterCalls measures calls over HTTP, also one with a large text, and the beginning of sessions.
func clusterCalls(ctx context.Context, m *measurement) error {
	url, s, err := m.childOverHTTP(ctx, hosting{})
	if err != nil {
		return err
	}
	for _, n := range []int{1, 64} {
		if err := m.calls(ctx, callers(n), n, s.echo(echoText)); err != nil {
			return err
		}
	}
	if err := m.calls(ctx, payload(largeText), 1, s.echo(strings.Repeat("0123456789abcdef", largeText/16))); err != nil {
		return err
	}
	return m.calls(ctx, opened, 1, func(ctx context.Context) error {
		s, err := m.http(ctx, m.revision, url)
		if err != nil {
			return err
		}
		return s.close()
	})
}

const largeText = 1 << 20

const (
	moved   = "the first request of a session at another node"
	changed = "a change reaches a listener at another node"
)

// movingSessions opens sessions at a node, ends the node, and measures the first request of each
// at another one. Before that it measures how long the news of a change takes.
func movingSessions(ctx context.Context, m *measurement) error {
	folder, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return err
	}
	m.opened = append(m.opened, func() error { return os.RemoveAll(folder) })
	var nodes []*clusterNode
	var sites []*site
	for _, name := range []string{"c", "b", "a"} { // c runs the NATS server
		n, err := joinCluster(ctx, folder, name)
		if err != nil {
			return err
		}
		s, err := newSite(n.handler)
		if err != nil {
			return err
		}
		nodes, sites = append([]*clusterNode{n}, nodes...), append([]*site{s}, sites...)
	}
	defer func() {
		for i := range nodes {
			sites[i].close()
			m.opened = append(m.opened, func() error { return nodes[i].close(ctx) })
		}
	}()
	if err := m.changes(ctx, nodes[0], nodes[1]); err != nil {
		return err
	}
	many := pick(m, 1000, 20)
	var sessions []string
	for range many {
		name, err := sites[0].openSession()
		if err != nil {
			return err
		}
		sessions = append(sessions, name)
	}
	if err := nodes[0].node.Drain(ctx); err != nil {
		return err
	}
	if err := nodes[0].close(ctx); err != nil {
		return err
	}
	each := new(histogram)
	for i, name := range sessions {
		took, err := timed(func() error {
			_, err := sites[1].client.post(sites[1].address, name, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
			return err
		})
		if err != nil {
			return fmt.Errorf("session %d of %d at another node: %w", i, many, err)
		}
		each.add(took)
	}
	m.addTimes(moved, each)
	return nil
}

// changes measures how long the news of a change takes from one node to another.
func (m *measurement) changes(ctx context.Context, from, to *clusterNode) error {
	arrived := make(chan struct{}, 1)
	stop := to.node.Changes().Subscribe(func(server.Change) { arrived <- struct{}{} })
	defer stop()
	each := new(histogram)
	for range pick(m, 1000, 20) {
		took, err := timed(func() error {
			from.node.Changes().Publish(server.Change{URI: "file:///changed"})
			select {
			case <-arrived:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			return err
		}
		each.add(took)
	}
	m.addTimes(changed, each)
	return nil
}
