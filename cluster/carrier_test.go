package cluster_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// doors carry requests between the nodes of one process, in memory, so that time can be virtual.
type doors struct {
	mu      sync.Mutex
	mounted map[string]http.Handler // by node and path
	closed  map[string]bool         // nodes that cannot be reached
	open    map[*passage]struct{}
}

func newDoors() *doors {
	return &doors{mounted: map[string]http.Handler{}, closed: map[string]bool{}, open: map[*passage]struct{}{}}
}

// of returns what one node has of the doors.
func (d *doors) of(node string) *door { return &door{d, node} }

// shut makes a node unreachable, or reachable again. What was under way from and to it breaks.
func (d *doors) shut(node string, closed bool) {
	d.mu.Lock()
	d.closed[node] = closed
	var broken []*passage
	for p := range d.open {
		if closed && (p.from == node || p.to == node) {
			broken = append(broken, p)
		}
	}
	d.mu.Unlock()
	for _, p := range broken {
		p.end(errors.New("the connection is broken"))
	}
}

type door struct {
	*doors
	node string
}

func (d *door) Mount(path string, h http.Handler) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounted[d.node+path] = h
	return nil
}

func (d *door) RoundTripper(node string) http.RoundTripper { return roundTripper{d, node} }

type roundTripper struct {
	from *door
	to   string
}

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	d := r.from
	ctx, cancel := context.WithCancelCause(request.Context())
	p := &passage{from: d.node, to: r.to, request: request, cancel: cancel, began: make(chan struct{}), header: http.Header{}}
	p.in, p.out = io.Pipe()
	d.mu.Lock()
	handler := d.mounted[r.to+request.URL.Path]
	unreachable := d.closed[r.to] || d.closed[d.node] || handler == nil
	if !unreachable {
		d.open[p] = struct{}{}
	}
	d.mu.Unlock()
	if unreachable {
		return nil, errors.New("connection refused")
	}
	context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })
	go func() {
		handler.ServeHTTP(p, request.WithContext(ctx))
		p.WriteHeader(http.StatusOK)
		d.mu.Lock()
		delete(d.open, p)
		d.mu.Unlock()
		p.end(io.EOF)
	}()
	select {
	case <-p.began:
		return &http.Response{StatusCode: p.status, Status: http.StatusText(p.status), Header: p.header, Body: p.in, Request: request}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A passage is one request and its response.
type passage struct {
	from, to string
	request  *http.Request
	cancel   context.CancelCauseFunc
	in       *io.PipeReader // the body of the response
	out      *io.PipeWriter
	header   http.Header
	once     sync.Once
	began    chan struct{}
	status   int
}

func (p *passage) end(why error) {
	p.cancel(why)
	p.out.CloseWithError(why)
	if body, ok := p.request.Body.(*io.PipeReader); ok {
		body.CloseWithError(io.ErrClosedPipe)
	}
}

// What follows implements http.ResponseWriter.

func (p *passage) Header() http.Header { return p.header }

func (p *passage) WriteHeader(status int) {
	if status < http.StatusOK { // another response follows
		return
	}
	p.once.Do(func() { p.status = status; close(p.began) })
}

func (p *passage) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.out.Write(b)
}

func (p *passage) FlushError() error { p.WriteHeader(http.StatusOK); return nil }

func (p *passage) SetReadDeadline(time.Time) error  { return p.request.Body.Close() }
func (p *passage) SetWriteDeadline(time.Time) error { return p.out.CloseWithError(io.ErrClosedPipe) }
