package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	loginTime    = 5 * time.Minute // the time that a person has to log in
	callbackPath = "/callback"
)

// LoopbackOptions say how a person logs in with a browser on this machine.
type LoopbackOptions struct {
	// Port is the port on 127.0.0.1 to which the browser is redirected. Zero: the port
	// that the client is registered with, or any other if that is in use.
	Port int

	// Open shows an address to the person. Nil: [Browse].
	Open func(context.Context, *url.URL) error
}

// Loopback returns a function for Options.Interact. It opens the browser and waits on
// 127.0.0.1 for the redirect (RFC 8252). After five minutes it returns [ErrUnanswered]. It
// accepts one response, which must have the state of this login; for any other request
// it shows a page that says so. It holds at most 32 connections at a time, for at most
// ten seconds each.
func Loopback(o LoopbackOptions) func(context.Context, Interaction) (*url.URL, error) {
	if o.Open == nil {
		o.Open = Browse
	}
	return func(ctx context.Context, i Interaction) (*url.URL, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("%w within %v", ErrUnanswered, loginTime))
		defer cancel()
		listener, err := listen(ctx, o.Port, i.Redirect)
		if err != nil {
			return nil, fmt.Errorf("auth: listen for the browser: %w", err)
		}
		defer listener.Close()
		address, err := i.Start(ctx, "http://"+listener.Addr().String()+callbackPath)
		if err != nil {
			return nil, err
		}
		c := &callback{host: listener.Addr().String(), state: address.Query().Get("state"), redirected: make(chan *url.URL, 1)}
		server := &http.Server{Handler: c, ConnState: new(openConns).track, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
		server.SetKeepAlivesEnabled(false)
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(listener) // Serve returns when the server is closed
		}()
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if server.Shutdown(end) != nil { // first let the page be sent
				_ = server.Close()
			}
			<-served
		}()
		if err := o.Open(ctx, address); err != nil {
			return nil, err
		}
		select {
		case redirected := <-c.redirected:
			return redirected, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// listen listens on the given port, or else on the port of an earlier redirect address,
// or else on any.
func listen(ctx context.Context, port int, redirect string) (net.Listener, error) {
	var config net.ListenConfig
	if earlier, err := url.Parse(redirect); port == 0 && err == nil && earlier.Hostname() == "127.0.0.1" && earlier.Path == callbackPath {
		if listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", earlier.Port())); err == nil {
			return listener, nil
		}
	}
	return config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// A callback receives the redirect of one login.
type callback struct {
	host, state string
	redirected  chan *url.URL // capacity one
}

// maxConns is how many connections may be open at a time.
const maxConns = 32

// openConns contains the open connections, oldest first. If there are too many, the oldest
// is closed. So a local program that opens many connections can neither use up the file
// descriptors of this program nor keep the browser out.
type openConns struct {
	mu   sync.Mutex
	open []net.Conn
}

// track is for http.Server.ConnState.
func (c *openConns) track(of net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) == maxConns {
			_ = c.open[0].Close() // the goroutine that reads the connection notices that
			c.open = slices.Delete(c.open, 0, 1)
		}
		c.open = append(c.open, of)
	case http.StateClosed:
		c.open = slices.DeleteFunc(c.open, func(other net.Conn) bool { return other == of })
	}
}

const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Login</title><body><p>%s</p></body></html>`

func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	status, text := c.accept(r)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, fmt.Sprintf(page, text)) // if this fails, the browser has disconnected
}

// accept checks a redirect, and returns what to tell the person.
func (c *callback) accept(r *http.Request) (status int, text string) {
	const refused = "This response was not accepted. You can close this page."
	switch query := r.URL.Query(); {
	case r.Host != c.host:
		return http.StatusBadRequest, refused
	case r.URL.Path != callbackPath:
		return http.StatusNotFound, "There is nothing here."
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, refused
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(c.state)) != 1 || c.state == "":
		return http.StatusBadRequest, refused
	}
	select {
	case c.redirected <- &url.URL{Scheme: "http", Host: c.host, Path: r.URL.Path, RawQuery: r.URL.RawQuery}:
		return http.StatusOK, "The program has the answer. You can close this page."
	default:
		return http.StatusBadRequest, refused
	}
}

// Browse opens an address in the user's browser, without a shell. The address must be an
// https URL, or an http URL of this machine.
func Browse(ctx context.Context, address *url.URL) error {
	if err := browsable(address); err != nil {
		return err
	}
	name, args := "xdg-open", []string{}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), name, append(args, address.String())...) // the browser may run longer than the login
	if err := command.Start(); err != nil {
		return fmt.Errorf("auth: open a browser: %w", err)
	}
	go func() { _ = command.Wait() }() // reaps the process when the browser ends
	return nil
}

func browsable(address *url.URL) error {
	host := address.Hostname()
	switch {
	case address.Opaque != "" || host == "":
	case address.Scheme == "https", address.Scheme == "http" && (host == "localhost" || net.ParseIP(host).IsLoopback()):
		return nil
	}
	return errors.New("auth: an address that is not https is not opened in a browser")
}
