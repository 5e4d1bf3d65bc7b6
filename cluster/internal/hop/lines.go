package hop

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// lines are the connections to one run of a node. Each carries maxOpen requests at a time. If
// all are full, one request makes another connection, and the others wait for it. If it fails, it
// fails for all that wait, so a node that does not answer costs each of them the time of one
// attempt.
type lines struct {
	mu      sync.Mutex
	all     []*line
	attempt *attempt     // to make another one; nil: nobody does
	changed wait.Changes // all waiting requests look again
	closed  bool
}

// An attempt is made by the first request that finds no line.
type attempt struct{ err error }

// A line is a connection, with a Transport that has no other one.
type line struct {
	of        *lines
	link      *connection
	transport *http.Transport
	made      time.Time
	down      chan struct{} // closed with the connection

	// Guarded by lines.mu.
	open    int  // requests that are not over yet
	given   bool // the Transport has the connection
	retired bool // it takes no more requests
}

// enter returns a line for a request, and makes one if there is none. The caller calls leave.
func (s *lines) enter(ctx context.Context, connect func(context.Context) (*line, error)) (*line, error) {
	for {
		l, of, mine, changed := s.find()
		switch {
		case l != nil:
			return l, nil
		case mine:
			made, err := connect(context.WithoutCancel(ctx)) // others wait for it
			if s.end(of, made, err); err != nil {
				return nil, err
			}
			return made, nil
		}
		select {
		case <-changed:
			if err := s.failure(of); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// find returns a line that is not full, or the attempt to make another one, which may be the
// caller's.
func (s *lines) find() (l *line, of *attempt, mine bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.all {
		if l.open < maxOpen && !l.retired {
			l.open++
			return l, nil, false, nil
		}
	}
	if mine = s.attempt == nil; mine {
		s.attempt = new(attempt)
	}
	return nil, s.attempt, mine, s.changed.Next()
}

func (s *lines) failure(of *attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of.err
}

// end ends an attempt. Its maker is the first to use the line.
func (s *lines) end(of *attempt, made *line, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.err, s.attempt = err, nil; err == nil {
		made.open, made.retired = 1, s.closed
		s.all = append(s.all, made)
	}
	s.changed.Announce()
}

// leave ends a request. A line that is not used any more is closed.
func (s *lines) leave(l *line) {
	s.mu.Lock()
	l.open--
	over := l.open == 0 && l.retired
	s.changed.Announce()
	s.mu.Unlock()
	if over {
		l.link.Close()
	}
}

// retire lets a line have no more requests.
func (s *lines) retire(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.retired = true
}

// close retires all lines, and closes those that are not used.
func (s *lines) close() {
	s.mu.Lock()
	s.closed = true
	var unused []*line
	for _, l := range s.all {
		if l.retired = true; l.open == 0 {
			unused = append(unused, l)
		}
	}
	s.mu.Unlock()
	for _, l := range unused {
		l.link.Close()
	}
}

// newLine returns a line on a connection.
func newLine(of *lines, c *connection) *line {
	l := &line{of: of, link: c, made: time.Now(), down: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // the TLS is below it: see connection
	l.transport = &http.Transport{
		DialContext: l.give, Protocols: protocols, DisableCompression: true,
		IdleConnTimeout: idleOutgoing, ExpectContinueTimeout: handshakePatience,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: responseWindow,
			SendPingTimeout:           silence, PingTimeout: pingPatience, WriteByteTimeout: pingPatience,
		},
	}
	return l
}

// errUnusable says that a line cannot take a request any more: it was closed, or the other node
// is about to close it. The request was not sent.
var errUnusable = errors.New("cluster: the connection takes no more requests")

// settling is how long after the making of a line its Transport may ask for a connection without
// a need. Requests that come before it knows of the one that it was given do so, and get that one
// in the end.
const settling = time.Second

// give gives the connection to the Transport, once. If the Transport asks again, it has found
// that the connection takes no more requests.
func (l *line) give(ctx context.Context, _, _ string) (net.Conn, error) {
	l.of.mu.Lock()
	first := !l.given
	l.given = true
	l.of.mu.Unlock()
	if first {
		return l.link, nil
	}
	wait := time.NewTimer(time.Until(l.made.Add(settling)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-l.down:
	case <-ctx.Done():
	}
	return nil, errUnusable
}

// ended removes a line whose connection was closed.
func (l *line) ended() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if i := slices.Index(l.of.all, l); i >= 0 {
		l.of.all = slices.Delete(l.of.all, i, i+1)
	}
	l.retired = true
	select {
	case <-l.down:
	default:
		close(l.down)
	}
}
