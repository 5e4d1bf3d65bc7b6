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

// A script is a link and the peer behind it. Its functions make faults that a real link seldom has.
type script struct {
	onSend  func(*script, transport.Outbound) error // nil: take the frame
	onClose func() error                            // nil: be lost with ErrClosed

	mu           sync.Mutex
	receiver     transport.Receiver
	sent         []transport.Outbound
	granted      int
	closes       int
	lossReported bool
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

// credit returns how many frames were granted.
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

// lose reports the loss of the link, unless it was reported before.
func (s *script) lose(loss transport.Loss) {
	s.mu.Lock()
	lossReported := s.lossReported
	s.lossReported = true
	s.mu.Unlock()
	if !lossReported && s.receiver != nil {
		s.receiver.Lost(loss)
	}
}

// deliver passes a frame of the peer to the Conn.
func (s *script) deliver(frame string) { s.receiver.Receive(transport.Inbound{Frame: []byte(frame)}) }

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

// An opening is a transport that opens links with a function.
type opening func(context.Context) (transport.Link, error)

func (o opening) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// opens returns a transport that opens the same link each time.
func opens(link transport.Link) opening {
	return func(context.Context) (transport.Link, error) { return link, nil }
}

// A run is a Conn that runs, and the channel for what its Run returns.
type run struct {
	*conn.Conn
	ended chan error
}

func start(c *conn.Conn) run {
	r := run{c, make(chan error, 1)}
	go func() { r.ended <- c.Run(context.Background()) }()
	return r
}

// scripted runs an initiator on the script, and waits until it is ready. Like all helpers here,
// it must be called in a synctest bubble.
func scripted(t *testing.T, s *script, o conn.Options) run {
	t.Helper()
	r := start(conn.New(opens(s), o))
	synctest.Wait()
	if state := r.State(); state != conn.Ready {
		t.Fatalf("the state is %s, want ready", state)
	}
	return r
}

// calling makes a call in the background, and returns the channel for its error.
func (r run) calling(ctx context.Context, request conn.Request) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := r.Call(ctx, request)
		result <- err
	}()
	synctest.Wait()
	return result
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// advance lets virtual time pass.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// A dialect reads "progress" notifications, whose params are an id and a value, and "ping" probes.
type dialect struct{}

func (dialect) Classify(m jsonrpc.Message) conn.Class {
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

func (dialect) Cancel(jsonrpc.ID, error) conn.Message { return conn.Message{Method: "cancel"} }
func (dialect) Probe() conn.Message                   { return conn.Message{Method: "ping"} }
func (dialect) Batches() bool                         { return true }

func (s *script) outbound() []transport.Outbound {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// fresh opens a new link each time.
func fresh(context.Context) (transport.Link, error) { return new(script), nil }

// hanging is a handshake that waits for the end of its context.
func hanging(ctx context.Context, _ *conn.Incarnation) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
