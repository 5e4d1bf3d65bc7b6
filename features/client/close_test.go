package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// If a session is closed right after its server came back, the Restored event comes
// before Close returns, even if the new server is slow. Close takes no longer than its
// context allows.
//
// Guarantees: G-0030.9
func TestRestoredComesBeforeCloseReturns(t *testing.T) {
	for name, c := range map[string]struct {
		slow time.Duration // how long the new server takes to answer the restored requests
		took time.Duration
		want []string
	}{
		"at once":     {0, 0, []string{"lost", "restored"}},
		"slow":        {time.Second, time.Second, []string{"lost", "restored"}},
		"never ready": {time.Hour, 5 * time.Second, []string{"lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported events
				over := make(chan struct{})
				s := &fakeServer{}
				s.answer = func(f frame) []string {
					if f.Method == protocol.MethodSetLogLevel && f.Link == 2 {
						timer := time.NewTimer(c.slow)
						defer timer.Stop()
						select {
						case <-timer.C:
						case <-over:
						}
					}
					return allAnswers(protocol.LatestLegacy)(f)
				}
				session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: reported.on})
				synctest.Wait()
				s.cut()
				synctest.Wait()
				if err := session.AwaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := session.Close(context.Background()); (err != nil) != (c.slow > time.Minute) {
					t.Error(err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("Close took %v, want %v", took, c.took)
				}
				close(over)
				reported.mu.Lock()
				defer reported.mu.Unlock()
				for i := range reported.all {
					reported.all[i], _, _ = strings.Cut(reported.all[i], " ")
				}
				if !slices.Equal(reported.all, c.want) {
					t.Errorf("got the events %q when Close returned, want %q", reported.all, c.want)
				}
			})
		})
	}
}

// Close of a client does not wait for OnUnsubscribe of the server, although both sides
// may share a goroutine.
//
// Guarantees: G-0054.4
func TestCloseDoesNotWaitForOnUnsubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, held := make(chan string), make(chan struct{})
		s := server.New(serverInfo, server.Options{
			OnSubscribe: func(context.Context, string) error { return nil },
			OnUnsubscribe: func(_ context.Context, uri string) {
				<-held
				ended <- uri
			},
		})
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
		session, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}).Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "x://a"}); err != nil {
			t.Fatal(err)
		}
		idle := time.NewTimer(time.Second)
		<-idle.C // until both sides have given up their goroutines
		if err := session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(held)
		if uri := <-ended; uri != "x://a" {
			t.Errorf("OnUnsubscribe got %s, want %q", uri, "x://a")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A slowStore needs two seconds to claim a name.
type slowStore struct{ registry.Local }

func (s *slowStore) Claim(ctx context.Context, c registry.Claim) (registry.Release, error) {
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.Local.Claim(ctx, c)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Closing a client ends sessions that are still starting, without waiting for the store
// that claims their name, and leaves nothing of them.
func TestClientIsClosedDuringStart(t *testing.T) {
	for name, begin := range map[string]func(*client.Client) error{
		"Start": func(c *client.Client) error {
			_, err := c.Start(context.Background(), "search", nowhere)
			return err
		},
		"Connect": func(c *client.Client) error {
			_, err := c.Connect(context.Background(), nowhere)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(slowStore)
				names := registry.New(registry.Options{Store: store})
				all := supervisor.New(supervisor.Options{Registry: names})
				c := client.New(clientInfo, client.Options{Supervisor: all, Conn: conn.Tuning{Name: "search"}})
				began, ended := time.Now(), make(chan error, 1)
				go func() { ended <- begin(c) }()
				synctest.Wait()
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, client.ErrClosed) {
					t.Errorf("%s returned %v, want %v", name, err, client.ErrClosed)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("Close took %v, want 0", took)
				}
				synctest.Wait()
				if names.Len() != 0 {
					t.Error("a closed session still has a name, want none")
				}
				if err := all.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An uncancellableStore needs two seconds to claim a name, even after its context has ended.
type uncancellableStore struct {
	registry.Local
	claimed atomic.Bool
}

func (s *uncancellableStore) Claim(ctx context.Context, c registry.Claim) (registry.Release, error) {
	pass(2 * time.Second)
	s.claimed.Store(true)
	return s.Local.Claim(ctx, c)
}

// The supervisor's Stop waits for the store claim of a start that Close has aborted.
func TestStopWaitsForTheClaimThatCloseLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(uncancellableStore)
		all := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{Store: store})})
		c := client.New(clientInfo, client.Options{Supervisor: all})
		ended := make(chan error, 1)
		go func() {
			_, err := c.Start(context.Background(), "search", nowhere)
			ended <- err
		}()
		synctest.Wait()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, client.ErrClosed) {
			t.Errorf("Start returned %v, want %v", err, client.ErrClosed)
		}
		if store.claimed.Load() {
			t.Error("Close waited for the store, want it to return at once")
		}
		if err := all.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if !store.claimed.Load() {
			t.Error("Stop returned before the claim had ended")
		}
	})
}
