package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// wantedFilter returns what a subscriptions/listen asks for, in words.
func wantedFilter(t *testing.T, f frame) string {
	t.Helper()
	var params protocol.ListenParams
	if err := protocol.Unmarshal(f.Params, &params); err != nil {
		t.Fatal(err)
	}
	n := params.Notifications
	return fmt.Sprint("tools ", n.ToolsListChanged, " prompts ", n.PromptsListChanged, " resources ", n.ResourcesListChanged, " ", n.ResourceSubscriptions)
}

// A subscription asks for what the program wants and the server offers, and for nothing else. If that is nothing, there is none.
//
// Guarantees: G-0021.2, G-0030.4
func TestWhatASubscriptionAsksFor(t *testing.T) {
	offers := func(tools, prompts, resources, subscribe bool) string {
		return fmt.Sprintf(`{"tools":{"listChanged":%t},"prompts":{"listChanged":%t},"resources":{"listChanged":%t,"subscribe":%t}}`, tools, prompts, resources, subscribe)
	}
	for name, test := range map[string]struct {
		offers    string
		events    bool
		subscribe []string
		want      string // the last subscription; empty for none
		failures  string // of Subscribe, and of the Restored of the next server
	}{
		"everything":                           {offers(true, true, true, true), true, []string{"file:///b", "file:///a"}, "tools true prompts true resources true [file:///a file:///b]", ""},
		"the tools":                            {offers(true, false, false, true), true, nil, "tools true prompts false resources false []", ""},
		"the prompts":                          {offers(false, true, false, true), true, nil, "tools false prompts true resources false []", ""},
		"the resources":                        {offers(false, false, true, true), true, nil, "tools false prompts false resources true []", ""},
		"nothing that is offered":              {offers(false, false, false, true), true, nil, "", ""},
		"no events":                            {offers(true, true, true, true), false, nil, "", ""},
		"a resource, no events":                {offers(true, true, true, true), false, []string{"file:///a"}, "tools false prompts false resources false [file:///a]", ""},
		"a resource that cannot be subscribed": {offers(true, true, true, false), true, []string{"file:///a"}, "tools true prompts true resources true []", "resources.subscribe"},
		"a resource that cannot be subscribed, alone": {offers(false, false, false, false), true, []string{"file:///a"}, "", "resources.subscribe"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := onSecondLink(grantingServer(), offering(test.offers))
				var o client.Options
				var mu sync.Mutex
				var restored []error
				if test.events {
					o.OnEvent = func(_ context.Context, _ *client.Session, e client.Event) {
						if e, ok := e.(*client.Restored); ok {
							mu.Lock()
							defer mu.Unlock()
							restored = e.Failures
						}
					}
				}
				session, err := connect(t, s, o, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				for _, uri := range test.subscribe { // the first server grants it
					if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				before := len(s.received(protocol.MethodListen))
				reconnect(t, s, session)
				var got []string
				for _, f := range s.received(protocol.MethodListen)[before:] {
					got = append(got, wantedFilter(t, f))
				}
				if want := slices.DeleteFunc([]string{test.want}, func(want string) bool { return want == "" }); !slices.Equal(got, want) {
					t.Errorf("got the subscriptions %q, want %q", got, want)
				}
				mu.Lock()
				defer mu.Unlock()
				failures := append(restored, nil)
				for _, uri := range test.subscribe {
					failures = append(failures, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}))
				}
				for i, err := range failures {
					var missing *client.CapabilityError
					if wrong := errors.As(err, &missing); wrong != (test.failures != "" && (err != nil || i > len(restored))) || wrong && (missing.Capability != test.failures || !errors.Is(err, client.ErrUnsupported)) {
						t.Errorf("got the failures %v, want that of %q", failures, test.failures)
					}
				}
			})
		})
	}
}

// The subscriptions of a session go on when the next server is of the other era, also if the program takes no events.
//
// Guarantees: G-0030.1, G-0030.5
func TestSubscriptionsGoOnInTheOtherEra(t *testing.T) {
	for _, modernFirst := range []bool{true, false} {
		for _, events := range []bool{true, false} {
			t.Run(fmt.Sprint(modernFirst, events), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					legacy, modern := allAnswers(protocol.LatestLegacy), grantingServer().answer
					s := &fakeServer{answer: func(f frame) []string {
						switch isModern := modernFirst == (f.Link%2 == 1); {
						case isModern && f.Method == protocol.MethodInitialize, !isModern && f.Method == protocol.MethodDiscover:
							return []string{f.fault(-32601, `null`)}
						case isModern:
							return modern(f)
						default:
							return legacy(f)
						}
					}}
					var o client.Options
					if events {
						o.OnEvent = func(context.Context, *client.Session, client.Event) {}
					}
					session, err := connect(t, s, o, time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					watch := watchInBackground(t, session, "file:///a")
					for server := 2; server <= 5; server++ {
						before := s.count()
						s.cut()
						pass(time.Minute)
						asked := 0
						for _, sent := range sentSince(s, before) {
							if strings.HasPrefix(sent, protocol.MethodSubscribe+" ") || strings.HasPrefix(sent, "listen ") {
								asked++
								if !strings.Contains(sent, "file:///a") {
									t.Errorf("server %d got %s", server, sent)
								}
							}
						}
						if asked != 1 {
							t.Errorf("server %d got %q, want one subscription", server, sentSince(s, before))
						}
						reads := len(s.received(protocol.MethodReadResource))
						s.sendFrame(updated("file:///a"))
						wantEnded(t, watch, false)
						if got := len(s.received(protocol.MethodReadResource)); got != reads+1 {
							t.Errorf("server %d: got %d reads after an update, want %d", server, got-reads, 1)
						}
					}
				})
			})
		}
	}
}

// Subscribe says how it has failed: its method, its cause, and that the server may have subscribed.
//
// Guarantees: G-0030.5
func TestErrorsOfSubscribe(t *testing.T) {
	enough := errors.New("enough")
	for name, test := range map[string]struct {
		listen response
		during func(s *fakeServer, end func()) // a second after the beginning
		limit  time.Duration                   // of the context
		cause  conn.Cause
		is     error
		text   string
		after  time.Duration
		own    time.Duration // the RequestTimeout of the client
	}{
		"no answer":          {noResponse, nil, 0, conn.TimedOut, client.ErrTimedOut, "", 30 * time.Second, 0},
		"no answer in 5 s":   {noResponse, nil, 0, conn.TimedOut, client.ErrTimedOut, "", 5 * time.Second, 5 * time.Second},
		"no answer, -1 ns":   {noResponse, nil, 0, conn.TimedOut, client.ErrTimedOut, "", 30 * time.Second, -1},
		"cancelled":          {noResponse, func(_ *fakeServer, end func()) { end() }, 0, conn.Cancelled, enough, "", time.Second, 0},
		"a deadline":         {noResponse, nil, 5 * time.Second, conn.TimedOut, enough, "", 5 * time.Second, 0},
		"the server is lost": {noResponse, func(s *fakeServer, _ func()) { s.cut() }, 0, conn.LinkLost, client.ErrStale, "", time.Second, 0},
		"it is not granted":  {func(f frame) []string { return f.grantsOnly(`["file:///b"]`) }, nil, 0, conn.Answered, nil, `does not grant reports of "file:///a"`, 0, 0},
		"it is refused":      {withFault(-32601, `null`), nil, 0, conn.PeerError, client.ErrUnsupported, "", 0, 0},
		"its params are":     {withFault(-32602, `null`), nil, 0, conn.PeerError, &jsonrpc.Error{Code: -32602}, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := grantingServer()
				s.on(protocol.MethodListen, func(f frame, _ func(frame) []string) []string { return test.listen(f) })
				session, err := connect(t, s, client.Options{Conn: conn.Tuning{RequestTimeout: test.own}}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				if test.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, test.limit, enough)
					defer cancel()
				}
				if test.during != nil {
					timer := time.AfterFunc(time.Second, func() { test.during(s, func() { end(enough) }) })
					defer timer.Stop()
				}
				began := time.Now()
				err = session.Subscribe(ctx, &protocol.SubscribeParams{URI: "file:///a"})
				var failed *client.CallError
				if !errors.As(err, &failed) || failed.Method != protocol.MethodListen || failed.Cause != test.cause || client.NotExecuted(err) ||
					test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) || errors.Is(err, client.ErrLost) != (test.cause == conn.LinkLost) {
					t.Errorf("got %#v, %v, want a failed %s with the cause %v and %v", err, err, protocol.MethodListen, test.cause, test.is)
				}
				if took := time.Since(began); took != test.after {
					t.Errorf("it took %v, want %v", took, test.after)
				}
			})
		})
	}
}

// Only the acknowledgement of the newest subscription counts. The others say nothing, whatever they grant, and nor do those that cannot be
// read.
//
// Guarantees: G-0030.4
func TestAcknowledgementsThatDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := grantingServer()
		silent := false
		s.on(protocol.MethodListen, func(f frame, before func(frame) []string) []string {
			if silent {
				return nil
			}
			return before(f)
		})
		session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported.want(t, "connected", "tools")
		first := s.received(protocol.MethodListen)[0]
		silent = true
		done := make(chan error, 1)
		go func() { done <- session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}) }()
		synctest.Wait()
		second := s.received(protocol.MethodListen)[1]
		ack := func(f frame, id string) string {
			f.ID = []byte(id)
			return f.grants()
		}
		for name, frame := range map[string]string{
			"the earlier one":   ack(second, string(first.ID)),
			"none that exists":  ack(second, "4711"),
			"a text":            ack(second, `"`+string(second.ID)+`"`),
			"no id":             strings.Replace(second.grants(), protocol.MetaSubscriptionID, "other", 1),
			"params of no form": `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":7}}`,
			"no params":         `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}`,
		} {
			s.sendFrame(frame)
			reported.want(t, name)
			if len(done) > 0 {
				t.Fatalf("an acknowledgement of %s counts: Subscribe has returned %v", name, <-done)
			}
		}
		s.sendFrame(second.grants())
		synctest.Wait()
		if len(done) == 0 {
			t.Fatal("Subscribe waits after the acknowledgement of its own subscription")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		reported.want(t, "the earlier one has reported until then")
	})
}

// If the earlier of two subscriptions ends before the later is acknowledged, changes in between were not reported.
//
// Guarantees: G-0030.4
func TestEarlierSubscriptionThatEndsTooSoon(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var reported events
			s := grantingServer()
			silent := false
			s.on(protocol.MethodListen, func(f frame, before func(frame) []string) []string {
				if silent {
					return nil
				}
				return before(f)
			})
			session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			reported.want(t, "connected", "tools")
			silent = true
			done := make(chan error, 1)
			go func() { done <- session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}) }()
			synctest.Wait()
			listens := s.received(protocol.MethodListen)
			var want []string
			if ends {
				s.sendFrame(listens[0].result(`{"resultType":"complete"}`))
				want = []string{"tools", "updated file:///a"}
			}
			synctest.Wait()
			s.sendFrame(listens[1].grants())
			if err := <-done; err != nil {
				t.Error(err)
			}
			reported.want(t, "the later one is acknowledged", want...)
		})
	}
}

// A server may combine the changes of a while, and then the subscription that was to report them is replaced. Nothing is missed.
//
// Guarantees: G-0030.4
func TestChangeJustBeforeASubscriptionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
		add := func(name string) {
			server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
		}
		add("first")
		server.AddResource(s, protocol.Resource{URI: "file:///a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
		session, err := connect(t, accepting(t, s), client.Options{OnEvent: reported.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported.want(t, "connected", "tools", "resources")
		params := &protocol.SubscribeParams{URI: "file:///a"}
		if err := session.Subscribe(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		s.ResourceUpdated("file:///a")
		pass(20 * time.Millisecond)
		reported.want(t, "updated", "updated file:///a")
		add("second") // is reported 10 ms after that update
		if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///a"}); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Millisecond)
		synctest.Wait()
		reported.mu.Lock()
		defer reported.mu.Unlock()
		if !slices.Contains(reported.all, "tools") {
			t.Errorf("got the events %q, want that of a new tool among them", reported.all)
		}
	})
}

// A subscription that is not acknowledged yet is cancelled when another replaces it; one that is, a second after the other is
// acknowledged.
//
// Guarantees: G-0030.4
func TestUnacknowledgedSubscriptionIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grantingServer()
		silent := true
		s.on(protocol.MethodListen, func(f frame, before func(frame) []string) []string {
			if silent {
				return nil
			}
			return before(f)
		})
		session, err := connect(t, s, client.Options{Calls: client.CallOptions{Timeout: time.Hour}}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var subscribing sync.WaitGroup
		wantOpen := func(when string, want ...int) { // the numbers of the subscriptions that were not cancelled
			t.Helper()
			synctest.Wait()
			var open []int
			for i, f := range s.received(protocol.MethodListen) {
				if !slices.ContainsFunc(s.received(protocol.NotificationCancelled), func(c frame) bool {
					return strings.Contains(string(c.Params), `"requestId":`+string(f.ID)+`,`) || strings.Contains(string(c.Params), `"requestId":`+string(f.ID)+`}`)
				}) {
					open = append(open, i)
				}
			}
			if !slices.Equal(open, want) {
				t.Errorf("%s: the subscriptions %v are open, want %v", when, open, want)
			}
		}
		subscribe := func(uri string) {
			subscribing.Go(func() {
				if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		subscribe("file:///a")
		wantOpen("one", 0)
		subscribe("file:///b")
		wantOpen("another replaces one that is not acknowledged", 1)
		silent = false
		subscribe("file:///c")
		wantOpen("another that is acknowledged", 2)
		subscribing.Wait()
		silent = true
		subscribe("file:///d")
		wantOpen("another replaces one that is acknowledged", 2, 3)
		subscribe("file:///e")
		wantOpen("and is itself replaced before it is acknowledged", 2, 4)
		silent = false
		subscribe("file:///f")
		wantOpen("the last is acknowledged", 2, 5)
		subscribing.Wait()
		pass(time.Second)
		wantOpen("a second later", 5)
	})
}
