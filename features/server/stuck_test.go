package server_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Tools that ignore the cancellation of their calls block their client for CancelGrace
// only. The Stuck hook gets the names of the tools.
//
// Guarantees: G-0003.17
func TestStuckToolsDoNotLockTheirClientOut(t *testing.T) {
	const places = 2
	var release func()
	began, stuck := make(chan struct{}, places), make(chan telemetry.Stuck, places)
	start := func() *server.Server {
		hang := make(chan struct{})
		release = sync.OnceFunc(func() { close(hang) })
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Conn: conn.Tuning{
			MaxServing: places, CancelGrace: 50 * time.Millisecond, Hooks: telemetry.Hooks{Stuck: func(e telemetry.Stuck) { stuck <- e }},
		}})
		server.AddTool(s, protocol.Tool{Name: "hang"}, func(context.Context, struct{}) (string, error) {
			began <- struct{}{}
			<-hang
			return "late", nil
		})
		server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
		return s
	}
	everywhere(t, start, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		t.Cleanup(release) // before the server is closed
		for range places {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "hang"})
				ended <- err
			}()
			<-began
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "greet"}); err != nil {
			t.Fatal(err)
		}
		for range places {
			if e := <-stuck; e.Method != protocol.MethodCallTool || e.Name != "hang" || e.Epoch == 0 {
				t.Errorf("the Stuck hook got %+v", e)
			}
		}
	})
}

// Close names what keeps a session from ending, and waits for it no longer than its
// context, or else DrainGrace and StopGrace, allow.
func TestCloseDoesNotWaitForEverForALeavingClient(t *testing.T) {
	const timeLimit, drain, grace = 3 * time.Second, 700 * time.Millisecond, 200 * time.Millisecond
	for name, connect := range map[string]func(*testing.T, *server.Server) *rawPeer{"served": dial, "accepted": accept} {
		for stuck, leaves := range map[string]bool{"OnUnsubscribe": true, "a notification of a change": false} {
			testenv.Bubble(t, func(t *testing.T) {
				release := make(chan struct{})
				s := newServer(server.Options{
					Conn:          conn.Tuning{DrainGrace: drain, StopGrace: grace},
					OnSubscribe:   func(context.Context, string) error { return nil },
					OnUnsubscribe: func(context.Context, string) { <-release },
					Middleware: []server.Middleware{func(next server.Handler) server.Handler {
						return func(ctx context.Context, r *server.Request) (any, error) {
							if r.Method == protocol.NotificationToolsListChanged {
								<-release
							}
							return next(ctx, r)
						}
					}},
				})
				addNamed(s, "first")
				w := connect(t, s)
				w.initialize(protocol.Version20251125)
				if leaves {
					w.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://a"}}`)
					w.link.Close(0)
				} else {
					addNamed(s, "second")
					pass(time.Second)
				}
				synctest.Wait()
				limited, cancel := context.WithTimeout(t.Context(), timeLimit)
				defer cancel()
				over, cancelOver := context.WithTimeout(t.Context(), 0)
				defer cancelOver()
				for ctx, most := range map[context.Context]time.Duration{t.Context(): drain + grace, limited: timeLimit, over: grace} {
					began, want := time.Now(), new(conn.StuckError)
					if err := s.Close(ctx); !errors.As(err, &want) || !slices.Equal(want.Tasks, []string{stuck}) {
						t.Errorf("%s, %s: got %v", name, stuck, err)
					}
					if took := time.Since(began); took > most {
						t.Errorf("%s, %s: Close took %v, want at most %v", name, stuck, took, most)
					}
				}
				close(release)
				synctest.Wait()
				if err := s.Close(t.Context()); err != nil {
					t.Errorf("%s, %s: closed again: %v", name, stuck, err)
				}
			})
		}
	}
}

// subscribing contains, for each era, a function that begins a subscription to x://a.
var subscribing = map[string]func(w *rawPeer){
	"legacy": func(w *rawPeer) {
		w.initialize(protocol.Version20251125)
		w.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://a"}}`)
	},
	"modern": func(w *rawPeer) {
		w.send(modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a"]}`))
		w.want("acknowledged")
	},
}

// Close lets OnUnsubscribe finish until the deadline of Close, or for DrainGrace. It
// ends the context of OnUnsubscribe shortly before that, not earlier.
//
// Guarantees: G-0021.5
func TestCloseLetsOnUnsubscribeFinish(t *testing.T) {
	const drain, limit = 5 * time.Second, 3 * time.Second // the default of DrainGrace, and a deadline
	background := func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }
	limited := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), limit)
	}
	cancelled := func() (context.Context, context.CancelFunc) {
		ctx, cancel := background()
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for name, test := range map[string]struct {
		ctx         func() (context.Context, context.CancelFunc)
		takes, took time.Duration
		ended       bool // whether the context of OnUnsubscribe ended
	}{
		"slow":                  {background, 300 * time.Millisecond, 300 * time.Millisecond, false},
		"slow, with a deadline": {limited, 2 * time.Second, 2 * time.Second, false},
		"until its context":     {background, time.Hour, drain / 100 * 99, true},
		"until the deadline":    {limited, time.Hour, limit / 100 * 99, true},
		"until a cancellation":  {cancelled, time.Hour, time.Second, true},
	} {
		for how, connect := range map[string]func(*testing.T, *server.Server) *rawPeer{"served": dial, "accepted": accept} {
			for era, subscribe := range subscribing {
				for leaves, leave := range map[string]func(*rawPeer){"left": func(w *rawPeer) { w.link.Close(0) }, "connected": func(*rawPeer) {}} {
					testenv.Bubble(t, func(t *testing.T) {
						name := strings.Join([]string{name, how, era, leaves}, ", ")
						s := newServer(server.Options{
							OnSubscribe: func(context.Context, string) error { return nil },
							OnUnsubscribe: func(ctx context.Context, _ string) {
								working, stop := context.WithTimeout(ctx, test.takes)
								defer stop()
								<-working.Done()
								if ended := ctx.Err() != nil; ended != test.ended {
									t.Errorf("%s: the context ended: %v, want %v", name, ended, test.ended)
								}
							},
						})
						w := connect(t, s)
						subscribe(w)
						pass(time.Second) // so that Close need not wait for further requests
						leave(w)
						synctest.Wait()
						ctx, cancel := test.ctx()
						defer cancel()
						began := time.Now()
						if err := s.Close(ctx); err != nil {
							t.Errorf("%s: got %v, want no error", name, err)
						}
						if took := time.Since(began); took != test.took {
							t.Errorf("%s: Close took %v, want %v", name, took, test.took)
						}
					})
				}
			}
		}
	}
}

// If the client leaves, OnUnsubscribe has DrainGrace to return. Its context has the
// values of the session or of the request.
func TestOnUnsubscribeHasDrainGrace(t *testing.T) {
	type key struct{}
	const drain, stuck = 700 * time.Millisecond, "stuck in OnSubscribe"
	all := maps.Clone(subscribing)
	all["modern, "+stuck] = func(w *rawPeer) {
		w.send(modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a"]}`))
		synctest.Wait()
	}
	all["legacy, "+stuck] = func(w *rawPeer) {
		w.initialize(protocol.Version20251125)
		w.send(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://a"}}`)
		synctest.Wait()
	}
	for era, subscribe := range all {
		testenv.Bubble(t, func(t *testing.T) {
			took := make(chan time.Duration, 2)
			s := newServer(server.Options{
				Conn: conn.Tuning{DrainGrace: drain},
				SessionContext: func(ctx context.Context, _ *server.Session) context.Context {
					return context.WithValue(ctx, key{}, "a value")
				},
				Middleware: []server.Middleware{func(next server.Handler) server.Handler {
					return func(ctx context.Context, r *server.Request) (any, error) {
						return next(context.WithValue(ctx, key{}, "a value"), r)
					}
				}},
				OnSubscribe: func(ctx context.Context, _ string) error {
					if strings.HasSuffix(era, stuck) {
						<-ctx.Done()
						pass(time.Second) // the session ends before OnSubscribe returns
					}
					return nil
				},
				OnUnsubscribe: func(ctx context.Context, _ string) {
					began := time.Now()
					if ctx.Value(key{}) != "a value" {
						t.Errorf("%s: the context has %v, want %q", era, ctx.Value(key{}), "a value")
					}
					<-ctx.Done()
					took <- time.Since(began)
				},
			})
			w := accept(t, s)
			subscribe(w)
			w.link.Close(0)
			if took := <-took; took != drain {
				t.Errorf("%s: its context ended after %v", era, took)
			}
			if pass(time.Minute); len(took) > 0 {
				t.Errorf("%s: OnUnsubscribe was called twice", era)
			}
		})
	}
}

// Without a deadline, DrainGrace limits the time of the requests and of OnUnsubscribe
// together.
//
// Guarantees: G-0021.5
func TestCloseTakesNoLongerThanDrainGrace(t *testing.T) {
	const drain = 5 * time.Second
	for era, subscribe := range subscribing {
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{
				OnSubscribe:   func(context.Context, string) error { return nil },
				OnUnsubscribe: func(ctx context.Context, _ string) { <-ctx.Done() },
			})
			server.AddTool(s, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ struct{}) (string, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
			w := accept(t, s)
			subscribe(w)
			call := modern(`3`, "tools/call", `"name":"hang"`)
			if era == "legacy" {
				call = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"hang"}}`
			}
			w.send(call)
			synctest.Wait()
			began := time.Now()
			if err := s.Close(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want %v", era, err, context.DeadlineExceeded)
			}
			if took := time.Since(began); took > drain {
				t.Errorf("%s: Close took %v, want at most %v", era, took, drain)
			}
		})
	}
}

// The error of Close names both what is stuck and which requests were cancelled.
func TestCloseReportsBothWhatIsStuckAndWhatWasCutShort(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newServer(server.Options{
			OnSubscribe:   func(context.Context, string) error { return nil },
			OnUnsubscribe: func(context.Context, string) { <-release },
		})
		server.AddTool(s, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		leaving, busy := accept(t, s), accept(t, s)
		leaving.initialize(protocol.Version20251125)
		leaving.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://a"}}`)
		leaving.link.Close(0)
		busy.send(modern(`1`, "tools/call", `"name":"hang"`))
		synctest.Wait()
		want, err := new(conn.StuckError), s.Close(t.Context())
		if !errors.As(err, &want) || !slices.Equal(want.Tasks, []string{"OnUnsubscribe"}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(release)
	})
}

// A handler has StopGrace to return even if the context of Close has already ended. A
// negative StopGrace means the default.
func TestCloseGivesHandlersTheirGrace(t *testing.T) {
	for grace, needs := range map[time.Duration]time.Duration{-1: 50 * time.Millisecond, 0: 50 * time.Millisecond, time.Second: 900 * time.Millisecond} {
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{Conn: conn.Tuning{StopGrace: grace}})
			server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
				err := server.Confirm(ctx, "Sure?")
				pass(needs)
				return "", err
			}, server.Asks(server.Waits, forms))
			w := accept(t, s)
			w.round("t", "")
			ctx, cancel := context.WithCancel(t.Context())
			if grace > 0 {
				cancel()
			}
			defer cancel()
			if err := s.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%v: got %v", grace, err)
			}
		})
	}
}
