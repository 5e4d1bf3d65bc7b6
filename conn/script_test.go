package conn_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A script is a link, and the peer behind it, that does as a test says: for
// the faults that honest links do not have.
type script struct {
	onSend  func(*script, transport.Outbound) error // nil: take the frame
	onClose func() error                            // nil: be lost with ErrClosed

	mu       sync.Mutex
	receiver transport.Receiver
	sent     []transport.Outbound
	granted  int
	closes   int
	over     bool
}

func (s *script) Bind(r transport.Receiver) { s.receiver = r }

func (s *script) Send(o transport.Outbound) error {
	if s.onSend != nil {
		if err := s.onSend(s, o); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, o)
	return nil
}

func (s *script) Resume(transport.Stream) {}
func (s *script) End(transport.Stream)    {}

func (s *script) Grant(_ transport.Stream, frames int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted += frames
}

// credit is how many frames were granted.
func (s *script) credit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted
}

func (s *script) Close(time.Duration) error {
	s.mu.Lock()
	s.closes++
	s.mu.Unlock()
	if s.onClose != nil {
		return s.onClose()
	}
	s.lose(transport.Loss{Reason: transport.ErrClosed})
	return nil
}

// lose reports the loss, once.
func (s *script) lose(loss transport.Loss) {
	s.mu.Lock()
	over := s.over
	s.over = true
	s.mu.Unlock()
	if !over && s.receiver != nil {
		s.receiver.Lost(loss)
	}
}

// say delivers a frame of the peer's.
func (s *script) say(frame string) { s.receiver.Receive(transport.Inbound{Frame: []byte(frame)}) }

func (s *script) frames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var frames []string
	for _, o := range s.sent {
		frames = append(frames, string(o.Frame))
	}
	return frames
}

func (s *script) closed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closes
}

// opening is a transport made of a function.
type opening func(context.Context) (transport.Link, error)

func (o opening) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// opens gives the same link at every attempt.
func opens(link transport.Link) opening {
	return func(context.Context) (transport.Link, error) { return link, nil }
}

// A run is a Conn and what its Run returns.
type run struct {
	*conn.Conn
	ended chan error
}

func start(c *conn.Conn) run {
	r := run{c, make(chan error, 1)}
	go func() { r.ended <- c.Run(context.Background()) }()
	return r
}

// scripted runs an initiator on the script until it is ready. It is to be
// called in a bubble, as is everything else here.
func scripted(t *testing.T, s *script, o conn.Options) run {
	t.Helper()
	r := start(conn.New(opens(s), o))
	synctest.Wait()
	if state := r.State(); state != conn.Ready {
		t.Fatalf("the state is %s", state)
	}
	return r
}

// calling makes a call in the background.
func (r run) calling(ctx context.Context, request conn.Request) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := r.Call(ctx, request)
		result <- err
	}()
	synctest.Wait()
	return result
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// dialect reads "progress" and "cancel" notifications with an id as params.
type dialect struct{}

func (dialect) Classify(m *jsonrpc.Message) conn.Class {
	var id int64
	switch m.Method {
	case "progress":
		if json.Unmarshal(m.Params, &[]any{&id, nil}) == nil {
			return conn.Class{Kind: conn.Progress, Request: jsonrpc.IntegerID(id)}
		}
	case "ping":
		return conn.Class{Kind: conn.Probe, Answer: json.RawMessage(`{}`)}
	}
	return conn.Class{}
}

func (dialect) Cancel(int64, error) conn.Message { return conn.Message{Method: "cancel"} }
func (dialect) Probe() conn.Message              { return conn.Message{Method: "ping"} }
func (dialect) Batches() bool                    { return true }

func (s *script) outbound() []transport.Outbound {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// fresh opens a link of its own each time.
func fresh(context.Context) (transport.Link, error) { return new(script), nil }

// hanging is a handshake that only its context ends.
func hanging(ctx context.Context, _ *conn.Incarnation) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
