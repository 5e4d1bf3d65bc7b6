package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/polling"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// headerPatience is the maximum time for the headers of a request.
	headerPatience = 10 * time.Second

	// idleConnection is how long a connection stays open without a request. Clients in
	// Go close theirs after 90 s. Because the server waits longer, a request never meets
	// a connection that it is closing.
	idleConnection = 2 * time.Minute
)

// ListenAndServe listens on srv.Addr, ":http" if empty, and then does what Serve
// does. If it cannot listen it returns the error and closes nothing.
func (h *Handler) ListenAndServe(ctx context.Context, srv *http.Server) error {
	listener, err := net.Listen("tcp", cmp.Or(srv.Addr, ":http"))
	if err != nil {
		return fmt.Errorf("streamable: %w", err)
	}
	return h.Serve(ctx, srv, listener)
}

// Serve serves HTTP on the listener until ctx ends, and then shuts down. It returns
// nil after all work has finished. If srv fails or is closed before ctx ends, Serve
// shuts down as well and returns the error of srv among others.
//
// Shutting down takes at most HandlerOptions.ShutdownGrace:
//
//  1. Serve closes the acceptors: the one given to NewHandler, and those that serve a
//     client now. Calls in flight finish; for new sessions the response is 503. The
//     context of Acceptor.Close ends after 80 % of the grace. With HandlerOptions.Sessions,
//     each session is freed as soon as it has no call, and its GET stream ends, so that
//     the client comes back elsewhere.
//  2. Serve closes the handler, as Close does. This ends the open streams.
//  3. Serve calls srv.Shutdown, which closes the listener and waits for the requests
//     of other handlers.
//
// Serve cuts off what has not finished in that time, and its error says what. It does
// not wait longer for an Acceptor whose Close does not return.
//
// The program sets srv.Handler: to h, which then serves every path, or to a handler that passes requests on
// to h. As for net/http, nil is http.DefaultServeMux. Serve adds to srv.ConnState, to close unused
// connections at the end. If srv.ReadTimeout is 0, Serve replaces
// a ReadHeaderTimeout of 0 by 10 s and an IdleTimeout of 0 by 2 min. A negative value
// means no timeout.
//
// If the listener returns connections of type *net.TCPConn, srv gets others, which answer a
// single quick caller sooner (ADR-0065). They have all methods of a *net.TCPConn, and their
// method NetConn() net.Conn returns it.
//
// For TLS give Serve a listener of crypto/tls. It serves HTTP/2 if its
// tls.Config.NextProtos has "h2".
func (h *Handler) Serve(ctx context.Context, srv *http.Server, listener net.Listener) error {
	if srv.ReadTimeout == 0 { // net/http uses it instead of these
		srv.ReadHeaderTimeout = cmp.Or(srv.ReadHeaderTimeout, headerPatience)
		srv.IdleTimeout = cmp.Or(srv.IdleTimeout, idleConnection)
	}
	closeUnused(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(new(polling.Group).Listener(listener)) }()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("streamable: serve: %w", err), h.shutDown(context.WithoutCancel(ctx), srv, h.options.ShutdownGrace))
	case <-ctx.Done():
		err := h.shutDown(context.WithoutCancel(ctx), srv, h.options.ShutdownGrace)
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(fmt.Errorf("streamable: serve: %w", ended), err)
		}
		return err
	}
}

// closeUnused makes the shutdown of a server close the connections on which no request has come.
// Clients open such connections in advance. A server of net/http waits for them for 5 s, and
// meanwhile drops a request that comes on one, whose sender cannot tell that it was not executed.
func closeUnused(srv *http.Server) {
	u := &unusedConns{next: srv.ConnState, all: make(map[net.Conn]struct{})}
	srv.ConnState = u.changed
	srv.RegisterOnShutdown(u.close)
}

// unusedConns are the connections of a server on which no request has come.
type unusedConns struct {
	next func(net.Conn, http.ConnState) // the program's own hook; nil: none

	mu      sync.Mutex
	all     map[net.Conn]struct{}
	closing bool
}

// changed implements http.Server.ConnState.
func (u *unusedConns) changed(c net.Conn, state http.ConnState) {
	if u.next != nil {
		u.next(c, state)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.all, c)
	case u.closing:
		c.Close()
	default:
		u.all[c] = struct{}{}
	}
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closing = true
	for c := range u.all {
		c.Close()
	}
}

// Shutdown does what Serve does when its context ends. Use it in a program that serves
// the handler without Serve. Shutdown closes the acceptors, the handler and srv, in
// this order, and returns when all of them are closed. It takes at most
// HandlerOptions.ShutdownGrace, and ends no later than the deadline of ctx. If ctx
// ends for another reason, Shutdown cuts everything off. If srv is nil, close your
// http.Server yourself after Shutdown.
func (h *Handler) Shutdown(ctx context.Context, srv *http.Server) error {
	grace := h.options.ShutdownGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = max(min(grace, time.Until(deadline)), 0)
	}
	return h.shutDown(ctx, srv, grace)
}

// shutDown closes the acceptors, the handler and srv within the grace, in this order.
func (h *Handler) shutDown(ctx context.Context, srv *http.Server, grace time.Duration) error {
	return web.Shutdown{Name: "streamable", Acceptors: h.acceptorsToClose(), Close: h.Close, Server: srv, Grace: grace}.Run(ctx)
}

// acceptorsToClose prevents further links, and returns the acceptors that may have some.
func (h *Handler) acceptorsToClose() []transport.Acceptor {
	acceptors := h.table.drain()
	if !web.IsNil(h.acceptor) {
		acceptors[h.acceptor] = struct{}{}
	}
	all := make([]transport.Acceptor, 0, len(acceptors))
	for a := range acceptors {
		all = append(all, a)
	}
	return all
}
