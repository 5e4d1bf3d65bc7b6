package streamable

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A patient handler answers "hold" when it is released, and the rest at once.
type patient struct{ release chan struct{} }

func (p patient) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == "hold" {
		<-p.release
	}
	return json.RawMessage(`"done"`), nil
}

func (patient) ServeNotification(context.Context, *conn.Incoming) {}

// What one client of a revision without sessions has served, or leaves waiting,
// does not make another's request be refused.
//
// Guarantees: G-0022.11
func TestModernClientsDoNotShareTheirBounds(t *testing.T) {
	identify := func(r *http.Request) string { return r.Header.Get("Authorization") }
	for name, test := range map[string]struct {
		options    HandlerOptions
		bad, good  func(*http.Request)
		sameBounds bool
	}{
		"by identity": {HandlerOptions{Identify: identify},
			func(r *http.Request) { r.Header.Set("Authorization", "bad") }, func(r *http.Request) { r.Header.Set("Authorization", "good") }, false},
		"by address": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1" }, false},
		"one identity at two addresses": {HandlerOptions{Identify: identify},
			func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1"; r.Header.Set("Authorization", "a") },
			func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1"; r.Header.Set("Authorization", "a") }, true},
		"one address, two ports": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:1" }, func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:2" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				serving := patient{make(chan struct{})}
				h := NewHandler(accepting(func(link transport.Link) {
					c := conn.Accept(link, conn.Options{Handler: serving, MaxServing: 2, MaxWaiting: 2})
					c.Start(context.Background(), func(error) {})
				}), test.options)
				defer h.Close(time.Minute)
				b := &bench{t: t, handler: h}
				for range 10 {
					r := newRequest("POST", modernBody("hold", ""), modernHeader("hold")...)
					test.bad(r)
					b.serveRequest(r)
				}
				r := newRequest("POST", modernBody("echo", ""), modernHeader("echo")...)
				test.good(r)
				w, _ := b.serveRequest(r)
				if served := strings.Contains(w.Body.String(), `"done"`); served == test.sameBounds {
					t.Errorf("another client is answered %d %q", w.Code, w.Body)
				}
				close(serving.release)
			})
		})
	}
}
