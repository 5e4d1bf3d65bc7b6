package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// A web is an HTTP server as the child of a supervisor. It can be run again:
// each run has an http.Server and a listener of its own.
type web struct {
	address string // to listen at; once known, with the port that the system has chosen
	handler http.Handler

	server      *http.Server
	listener    net.Listener
	connections sync.WaitGroup
}

func (w *web) url() string { return "http://" + w.address }

// listen is the child's Init: who starts the child knows that it can be reached.
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
		BaseContext:       func(net.Listener) context.Context { return ctx }, // a stop cancels what is being served
		ConnState:         w.count,
	}
	return nil
}

// serve is the child's Run. Serve returns when a shutdown begins, and this only
// when it is over: a Run leaves nothing behind.
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

// drain is the child's Drain: it accepts nobody new, and has answered everybody
// when it returns.
func (w *web) drain(ctx context.Context) error { return w.server.Shutdown(ctx) }

// count keeps the number of connections. A new one is told before Serve can
// return, and a closed one when its handler has returned.
func (w *web) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		w.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		w.connections.Done()
	}
}
