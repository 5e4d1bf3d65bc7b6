package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// Forward returns a handler that forwards requests to the node at a URL, for [Nodes]. It
// is a reverse proxy that keeps the host and the credentials of a request, and uses
// http.DefaultTransport. It names the address of the client in X-Forwarded-For; the other node
// believes that if this one is among its HandlerOptions.TrustedProxies.
//
// If the node refuses a connection, the response is 502. If it refuses the next one, too,
// at least a second later, the node is gone with its sessions, and the response is 404
// until a connection succeeds. So a node that only restarts its socket keeps its sessions,
// and the clients of a dead node begin new ones. Within that second, requests wait. A request
// that belongs to no session is then served by the node that should forward it. With
// HandlerOptions.Sessions, that node takes the session from the store as soon as the other one
// refuses a connection.
func Forward(node *url.URL) http.Handler {
	return newForwarder(node, nil)
}

func newForwarder(node *url.URL, by http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(node)
			r.Out.Host = r.In.Host
			if host, ok := network.Host(web.AddressOf(r.In)); ok {
				r.Out.Header.Set("X-Forwarded-For", host)
			}
		},
		Transport: &dials{by: by},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			gone, retried := errors.Is(err, errNodeGone), retriedOf(r)
			switch {
			case retried == ifGone && gone, retried == ifRefused && network.IsRefused(err):
				w.WriteHeader(http.StatusMisdirectedRequest)
			case gone:
				sessionNotFound(jsonrpc.ID{}).write(w)
			default:
				http.Error(w, "the node of the request cannot be reached", http.StatusBadGateway)
			}
		},
	}
}

// dialPause is the minimum time between two refused dials that show that a node is gone.
const dialPause = time.Second

var errNodeGone = errors.New("streamable: the node is gone")

// dials counts the dials to a node that were refused in a row.
type dials struct {
	by http.RoundTripper // nil: http.DefaultTransport

	mu      sync.Mutex
	refused int
	firstAt time.Time // when the first of them was refused
}

// RoundTrip implements http.RoundTripper. It returns errNodeGone for a node that is gone.
func (d *dials) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := d.pause(r.Context()); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	began := time.Now()
	response, err := cmp.Or(d.by, http.DefaultTransport).RoundTrip(r)
	if r.Context().Err() == nil && d.count(began, err) {
		return nil, fmt.Errorf("%w: %w", errNodeGone, err)
	}
	return response, err
}

// pause waits after the first refused dial, until the next one can tell whether the node
// is gone.
func (d *dials) pause(ctx context.Context) error {
	d.mu.Lock()
	first, until := d.refused == 1, d.firstAt.Add(dialPause)
	d.mu.Unlock()
	if !first {
		return nil
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count counts the result of a request, and reports whether the node is gone. Dials that
// began before the pause was over are part of the first one.
func (d *dials) count(began time.Time, err error) (gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !network.IsRefused(err):
		d.refused = 0
	case d.refused == 0:
		d.refused, d.firstAt = 1, time.Now()
	case began.Sub(d.firstAt) >= dialPause:
		d.refused = maxFailedDials
	}
	return d.refused >= maxFailedDials
}
