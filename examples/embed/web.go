package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// A web is an HTTP server that is a child of a supervisor. It can run again: each run
// creates an http.Server and a listener.
type web struct {
	address string // the address to listen at; after the first run, with the port that the system has chosen
	handler http.Handler

	server      *http.Server
	listener    net.Listener
	connections sync.WaitGroup
}

func (w *web) url() string { return "http://" + w.address }

// listen is the Init of the child. When Start of the child has returned, the server
// can be reached.
func (w *web) listen(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", w.address)
	if err != nil {
		return err
	}
	if w.listener == nil {
		w.address = listener.Addr().String()
	}
	w.listener = listener
	w.server = &http.Server{
		Handler:           w.handler,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // a stop of the child cancels the requests being served
		ConnState:         w.count,
	}
	return nil
}

// serve is the Run of the child. http.Server.Serve returns when a shutdown begins, but
// serve waits until all connections are closed, because a Run must leave nothing behind.
func (w *web) serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { w.server.Close() })()
	err := w.server.Serve(w.listener)
	if !errors.Is(err, http.ErrServerClosed) {
		w.server.Close()
		w.connections.Wait()
		return err
	}
	w.connections.Wait()
	return nil
}

// drain is the Drain of the child. It accepts no new connections, and returns when all
// requests are answered.
func (w *web) drain(ctx context.Context) error { return w.server.Shutdown(ctx) }

// count counts the open connections. net/http reports a new connection before Serve
// can return, and a closed one after its handler has returned.
func (w *web) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		w.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		w.connections.Done()
	}
}
