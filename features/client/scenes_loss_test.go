package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A road leads to a server, unless it is closed.
type road struct {
	transport.Transport
	broken *fault.Transport

	mu     sync.Mutex
	closed error
}

func roadTo(s *server.Server) *road {
	broken := fault.New(to(s), fault.Plan{})
	return &road{Transport: broken, broken: broken}
}

func (r *road) Open(ctx context.Context) (transport.Link, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return nil, r.closed
	}
	return r.Transport.Open(ctx)
}

// close lets no further link open, for a reason, or again with nil.
func (r *road) close(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = why
}

// Links break, a server is away and comes back, for two clients with calls of every kind.
func TestSceneOfALoss(t *testing.T) {
	for _, version := range revisions[2:] {
		t.Run(version, func(t *testing.T) {
			play(t, "loss-"+version, "A server is lost and found, in "+version, func(s *conversation) { s.losses(version) })
		})
	}
}

func (s *conversation) losses(version string) {
	post := s.tourServer()
	tuned := conn.Tuning{BackoffMin: time.Second, BackoffMax: 4 * time.Second, ProvenAfter: time.Hour}
	s.Step("Ada connects, and subscribes")
	roadA, roadB := roadTo(post), roadTo(post)
	ada := s.client("ada", client.Options{ProtocolVersion: version, LogLevel: protocol.LogInfo, Conn: tuned})
	a := s.connect("ada", ada, roadA)
	s.pass(time.Second)
	s.call("ada", "Subscribe a", func(ctx context.Context) (any, error) {
		return nil, a.Subscribe(ctx, &protocol.SubscribeParams{URI: "box://a"})
	})
	s.pass(2 * time.Second)
	s.Step("Ben starts while the server is away")
	roadB.close(errors.New("the road is closed"))
	silent := s.options("ben", client.Options{ProtocolVersion: version, Conn: tuned})
	silent.OnEvent = nil // nothing is restored for Ben, so the ids of his calls are known
	ben := client.New(protocol.Implementation{Name: "ben", Version: "2.0"}, silent)
	var b *client.Session
	s.call("ben", "Start", func(ctx context.Context) (_ any, err error) {
		b, err = ben.Start(ctx, "ben", s.tap("ben", roadB))
		return b.Name(), err
	})
	s.call("ben", "Start again", func(ctx context.Context) (any, error) { return ben.Start(ctx, "ben", roadB) })
	s.pass(100 * time.Millisecond)
	s.call("ben", "Ping", func(ctx context.Context) (any, error) { return nil, b.Ping(ctx) })
	_, ready := s.start("ben", "AwaitReady", func(ctx context.Context) (any, error) { return nil, b.AwaitReady(ctx) })
	s.pass(8 * time.Second)
	s.call("ben", "Status", func(context.Context) (any, error) { return b.Status(), nil })
	s.Step("The server comes")
	roadB.close(nil)
	b.Wake()
	ready()
	s.pass(time.Second)
	s.restored(a, roadA)
	s.broken(b, roadB)
	s.Step("Ben pins a session, and it is lost")
	pinned := b.Pin()
	s.call("ben", "Ping", func(ctx context.Context) (any, error) { return nil, pinned.Ping(ctx) })
	roadB.broken.Break()
	s.pass(100 * time.Millisecond)
	s.call("ben", "Ping while it is away", func(ctx context.Context) (any, error) { return nil, pinned.Ping(ctx) })
	s.pass(3 * time.Second)
	s.call("ben", "Ping when it is back", func(ctx context.Context) (any, error) { return nil, pinned.Ping(ctx) })
	s.call("ben", "Ping without the pin", func(ctx context.Context) (any, error) { return nil, b.Ping(ctx) })
	s.call("ben", "Report", func(context.Context) (any, error) {
		raw, err := json.Marshal(ben.Report())
		return json.RawMessage(raw), err
	})
	s.Step("Ada closes with 2 s for a call that takes longer, and one that does not")
	s.Sort() // what is left ends at the same time
	call := func(tool string) func() {
		_, wait := s.start("ada", tool, func(ctx context.Context) (any, error) {
			return a.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"to":"Eve"}`)})
		})
		s.pass(500 * time.Millisecond)
		return wait
	}
	waits := []func(){call("wait")}
	_, waitWeigh := s.start("ada", "weigh", func(ctx context.Context) (any, error) {
		return a.CallTool(ctx, &protocol.CallToolParams{Name: "weigh", Arguments: json.RawMessage(`{"to":"Eve"}`)})
	})
	s.pass(500 * time.Millisecond)
	_, closed := s.start("ada", "Close", func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return nil, a.Close(ctx)
	})
	s.pass(100 * time.Millisecond)
	s.call("ada", "Ping during the drain", func(ctx context.Context) (any, error) { return nil, a.Ping(ctx) })
	for _, wait := range append(waits, waitWeigh, closed) {
		wait()
	}
	s.pass(2 * time.Second)
	s.Step("Ben stops, with a call on its way")
	_, wait := s.start("ben", "wait", func(ctx context.Context) (any, error) {
		return b.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
	})
	s.pass(time.Second)
	b.Stop()
	wait()
	s.call("ben", "Wait", func(context.Context) (any, error) { return nil, b.Wait() })
	s.pass(2 * time.Second)
	s.Step("Nobody finds a server that stays away")
	roadA.close(errors.New("the road is closed for good"))
	for _, o := range []client.Options{{FailFast: true}, {Conn: tuned}} {
		o.ProtocolVersion = version
		s.call("late", "Connect", func(ctx context.Context) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return client.New(protocol.Implementation{Name: "late", Version: "1"}, s.options("late", o)).Connect(ctx, s.tap("late", roadA))
		})
	}
	s.Step("All close")
	s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, ada.Close(ctx) })
	s.call("ben", "Close", func(ctx context.Context) (any, error) { return nil, ben.Close(ctx) })
	s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, post.Close(ctx) })
}

// restored breaks a link, and changes what is to be restored while the server is away.
func (s *conversation) restored(a *client.Session, r *road) {
	s.Step("Ada's link breaks during a call, and the server stays away")
	_, wait := s.start("ada", "wait", func(ctx context.Context) (any, error) {
		return a.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
	})
	s.pass(time.Second)
	r.close(errors.New("the road is closed"))
	r.broken.Break()
	wait()
	s.pass(500 * time.Millisecond)
	s.Step("Ada changes what is to be restored")
	s.call("ada", "Subscribe b", func(ctx context.Context) (any, error) {
		return nil, a.Subscribe(ctx, &protocol.SubscribeParams{URI: "box://b"})
	})
	s.call("ada", "SetLogLevel", func(ctx context.Context) (any, error) { return nil, a.SetLogLevel(ctx, protocol.LogWarning) })
	s.call("ada", "Status", func(context.Context) (any, error) { return a.Status(), nil })
	s.pass(10 * time.Second)
	s.Step("The server is back, and lets Ada subscribe")
	r.close(nil)
	s.pass(5 * time.Second)
	s.call("ada", "Unsubscribe a", func(ctx context.Context) (any, error) {
		return nil, a.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "box://a"})
	})
	s.pass(2 * time.Second)
}

// broken breaks a link with three calls on their way, while the server stays away for a while.
func (s *conversation) broken(b *client.Session, r *road) {
	s.Step("Ben's link breaks with three calls on their way, and the server stays away")
	patient := client.CallOptions{WaitForReady: true, Retries: 2, OnAttempt: func(tried conn.Attempt) {
		raw, _ := json.Marshal(tried)
		s.notef("ben asked", "attempt %s", raw)
	}}
	repeatable := patient
	repeatable.Repeatable = true
	var waits []func()
	for _, one := range []struct {
		name string
		o    client.CallOptions
	}{{"a call", client.CallOptions{}}, {"a call with retries", patient}, {"a call that may be repeated", repeatable}} {
		session := b.With(one.o)
		_, wait := s.start("ben", one.name, func(ctx context.Context) (any, error) {
			return session.CallTool(ctx, &protocol.CallToolParams{Name: "weigh", Arguments: json.RawMessage(`{"to":"Eve","grams":3}`)})
		})
		waits = append(waits, wait)
		s.pass(100 * time.Millisecond)
	}
	r.close(errors.New("the road is closed"))
	s.Sort() // calls end at the same time
	r.broken.Break()
	s.pass(time.Second)
	s.Step("Calls while there is no server")
	s.call("ben", "Ping", func(ctx context.Context) (any, error) { return nil, b.Ping(ctx) })
	waiting := b.With(client.CallOptions{WaitForReady: true, Timeout: time.Second})
	s.call("ben", "Ping that waits for 1.5 s", func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		return nil, waiting.Ping(ctx)
	})
	s.call("ben", "ListTools, also old ones", func(ctx context.Context) (any, error) {
		return b.With(client.CallOptions{MaxStale: time.Hour}).ListTools(ctx, nil)
	})
	s.Step("The server is back")
	r.close(nil)
	for _, wait := range waits {
		wait()
	}
	s.pass(3 * time.Second)
}
