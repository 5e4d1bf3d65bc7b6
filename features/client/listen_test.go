package client_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const announcement = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// acknowledged returns the first message of a subscription.
func (f frame) acknowledged() string {
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` +
		`"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(f.ID) + `}}}`
}

// listenServer returns a modern server that answers subscriptions/listen with listen.
func listenServer(listen response) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodDiscover:
			return []string{f.result(discovered)}
		case protocol.MethodListen:
			return listen(f)
		default:
			return nil
		}
	}}
}

func acknowledgeOnly(f frame) []string { return []string{f.acknowledged()} }

// sendFrame lets the server send a frame on its newest link.
func (s *fakeServer) sendFrame(raw string) {
	s.mu.Lock()
	link := s.links[len(s.links)-1]
	s.mu.Unlock()
	link.Send(outbound(raw))
}

// countingEvents connects a client that counts its ToolsChanged events, for the length of a
// test.
func countingEvents(t *testing.T, s *fakeServer, o client.Options) (*client.Session, *atomic.Int64) {
	t.Helper()
	reported := new(atomic.Int64)
	o.OnEvent = onToolsChanged(func(context.Context, *client.Session) { reported.Add(1) })
	session, err := connect(t, s, o, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return session, reported
}

// wantReports checks how many ToolsChanged events the program got, once the bubble is
// idle.
func wantReports(t *testing.T, when string, reported *atomic.Int64, want int64) {
	t.Helper()
	synctest.Wait()
	if got := reported.Load(); got != want {
		t.Errorf("%s: got %d events, want %d", when, got, want)
	}
}

// A legacy server reports changes without a subscription. A new server session counts
// as one change.
func TestLegacyServerReportsWithoutASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(f frame) []string {
			if f.Method != protocol.MethodInitialize {
				return nil
			}
			return f.initialized(protocol.LatestLegacy, `{"tools":{"listChanged":true}}`)
		}}
		session, reported := countingEvents(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy})
		wantReports(t, "connected", reported, 0)
		for n := range int64(3) {
			s.sendFrame(announcement)
			wantReports(t, "after a change", reported, n+1)
		}
		reconnect(t, s, session)
		wantReports(t, "after a reconnect", reported, 4)
		s.sendFrame(announcement)
		wantReports(t, "after its change", reported, 5)
		if len(s.received(protocol.MethodListen)) > 0 {
			t.Error("a legacy server got subscriptions/listen, want none")
		}
	})
}

// A modern server gets one subscription, which has no timeout. Its acknowledgement
// counts as a change, because tools may have changed since the last list.
//
// Guarantees: G-0021.2
func TestModernServerGetsOneSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listenServer(acknowledgeOnly)
		session, reported := countingEvents(t, s, client.Options{})
		wantReports(t, "connected", reported, 1)
		s.sendFrame(announcement)
		wantReports(t, "after a change", reported, 2)
		reconnect(t, s, session)
		wantReports(t, "after a reconnect", reported, 3)
		s.sendFrame(announcement)
		wantReports(t, "after its change", reported, 4)
		listens := s.received(protocol.MethodListen)
		if len(listens) != 2 || listens[0].Link != 1 || listens[1].Link != 2 {
			t.Errorf("got the subscriptions %v, want 2", listens)
		}
		var params protocol.ListenParams
		if err := protocol.Unmarshal(listens[0].Params, &params); err != nil || !params.Notifications.ToolsListChanged {
			t.Errorf("got the subscription %s, %v", listens[0].Params, err)
		}
		pass(time.Hour) // a subscription has no timeout
		if again := s.received(protocol.MethodListen); len(again) != 2 {
			t.Errorf("got %d subscriptions, want 2", len(again))
		}
	})
}

// A subscription that the server ends is made again after a delay.
//
// Guarantees: G-0021.2
func TestSubscriptionThatEndsIsMadeAgain(t *testing.T) {
	for name, end := range map[string]response{
		"with a result": func(f frame) []string { return []string{f.acknowledged(), f.result(`{"resultType":"complete"}`)} },
		"with an error": func(f frame) []string { return []string{f.acknowledged(), f.fault(jsonrpc.CodeInternalError, `null`)} },
	} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			s := listenServer(func(f frame) []string {
				if first {
					first = false
					return end(f)
				}
				return acknowledgeOnly(f)
			})
			_, reported := countingEvents(t, s, client.Options{})
			wantReports(t, name, reported, 1)
			pass(2 * time.Second)
			wantReports(t, name+", again", reported, 2)
			s.sendFrame(announcement)
			wantReports(t, name+", of a change", reported, 3)
			if n := len(s.received(protocol.MethodListen)); n != 2 {
				t.Errorf("%s: got %d subscriptions, want 2", name, n)
			}
		})
	}
}

// Over HTTP, a subscription that is lost or refused is made again, without losing the
// link.
//
// Guarantees: G-0021.2
func TestSubscriptionThatIsLostIsMadeAgain(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(transport.Receiver, transport.Outbound)
		again  bool
	}{
		"a stream that breaks": {func(to transport.Receiver, o transport.Outbound) {
			to.StreamOpened(transport.Stream(o.Tag), o.Tag)
			to.StreamLost(transport.StreamLoss{Stream: transport.Stream(o.Tag), Reason: transport.ErrPeerClosed})
		}, true},
		"a server that is overloaded": {func(to transport.Receiver, o transport.Outbound) {
			to.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 503}})
		}, true},
		"method not found": {func(to transport.Receiver, o transport.Outbound) {
			fault := &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}
			to.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 404, Fault: fault}, Unsent: true})
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := modernServer(nil)
			t.Cleanup(s.close)
			asked := 0
			session, err := connect(t, intercepting(s, protocol.MethodListen, func(to transport.Receiver, o transport.Outbound) {
				asked++
				test.answer(to, o)
			}), client.Options{OnEvent: onToolsChanged(func(context.Context, *client.Session) {})}, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Minute)
			synctest.Wait()
			if asked == 1 == test.again || asked > 60 {
				t.Errorf("%s: got %d subscriptions", name, asked)
			}
			if epoch := session.Conn().Status().Epoch; epoch != 1 {
				t.Errorf("%s: the link was lost, want only the subscription to be lost", name)
			}
		})
	}
}

// After a subscription that lasted, the delays start again at the shortest.
func TestLastingSubscriptionResetsTheDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listenServer(acknowledgeOnly)
		countingEvents(t, s, client.Options{})
		for n := 2; n < 20; n++ {
			pass(time.Minute)
			asked := s.received(protocol.MethodListen)
			s.sendFrame(asked[len(asked)-1].result(`{}`))
			pass(2 * time.Second)
			if asked := s.received(protocol.MethodListen); len(asked) != n {
				t.Fatalf("got %d subscriptions, want %d", len(asked), n)
			}
		}
	})
}

// A server that does not support subscriptions gets few requests for one.
//
// Guarantees: G-0021.2
func TestServerWithoutListenGetsFewRequests(t *testing.T) {
	for name, test := range map[string]struct {
		listen      response
		least, most int // how many requests in ten minutes
	}{
		"overloaded":       {withFault(jsonrpc.CodeInternalError, `null`), 15, 60},
		"ends immediately": {func(f frame) []string { return []string{f.acknowledged(), f.result(`{}`)} }, 15, 60},
		"method not found": {withFault(jsonrpc.CodeMethodNotFound, `null`), 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := listenServer(test.listen)
			countingEvents(t, s, client.Options{})
			pass(10 * time.Minute)
			if n := len(s.received(protocol.MethodListen)); n < test.least || n > test.most {
				t.Errorf("%s: got %d subscriptions, want n >= %v and n <= %v", name, n, test.least, test.most)
			}
		})
	}
}

// A server without subscriptions gets one request for a subscription, and a new server
// session is reported once, whatever it answers.
//
// Guarantees: G-0021.2
func TestReplacementWithoutListenIsReportedOnce(t *testing.T) {
	for name, listen := range map[string]response{
		"method not found": withFault(jsonrpc.CodeMethodNotFound, `null`),
		"overloaded":       withFault(jsonrpc.CodeInternalError, `null`),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := listenServer(listen)
			session, reported := countingEvents(t, s, client.Options{})
			pass(5 * time.Minute)
			wantReports(t, name, reported, 0)
			for n := range int64(2) {
				reconnect(t, s, session)
				pass(5 * time.Minute)
				wantReports(t, name+", replaced", reported, n+1)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{protocol.MethodDiscover: `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`})
		session, reported := countingEvents(t, s, client.Options{})
		wantReports(t, "without listChanged", reported, 0)
		reconnect(t, s, session)
		wantReports(t, "without listChanged, after a reconnect", reported, 1)
		if n := len(s.received(protocol.MethodListen)); n > 0 {
			t.Errorf("got %d subscriptions, want none", n)
		}
	})
}

// Changes that happen while OnEvent runs are reported as one change afterwards.
func TestChangesDuringOnEventAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		var reported atomic.Int64
		proceed := make(chan struct{})
		_, err := connect(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy, OnEvent: onToolsChanged(func(context.Context, *client.Session) {
			reported.Add(1)
			<-proceed
		})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			s.sendFrame(announcement)
			synctest.Wait()
		}
		wantReports(t, "while OnEvent runs", &reported, 1)
		close(proceed)
		wantReports(t, "after OnEvent has returned", &reported, 2)
	})
}

// Close ends the subscription and waits for OnEvent.
//
// Guarantees: G-0021.2
func TestCloseEndsTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listenServer(acknowledgeOnly)
		ended := errors.New("OnEvent has not returned")
		session, err := connect(t, s, client.Options{OnEvent: onToolsChanged(func(ctx context.Context, s *client.Session) {
			<-ctx.Done()
			pass(50 * time.Millisecond) // OnEvent returns late
			ended = ctx.Err()
		})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := session.Close(t.Context()); err != nil || !errors.Is(ended, context.Canceled) {
			t.Errorf("got %v, %v, want %v", err, ended, context.Canceled)
		}
		cancelled := s.received(protocol.NotificationCancelled)
		if listens := s.received(protocol.MethodListen); len(listens) != 1 || len(cancelled) != 1 ||
			string(cancelled[0].Params) != `{"requestId":`+string(listens[0].ID)+`,"reason":"closing"}` {
			t.Errorf("the server got the cancellations %v, want one of the subscription", cancelled)
		}
	})
}

// A session that the program closes tells of no refused subscription, also while Close waits for a call.
//
// Guarantees: G-0030.11
func TestCloseRefusesNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ignoringFirst(protocol.MethodCallTool, 1, grantingServer())
		var refused []error
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if e, ok := e.(*client.SubscriptionRefused); ok {
				refused = append(refused, e.Err)
			}
		}})
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///1"}); err != nil {
			t.Fatal(err)
		}
		called := make(chan error, 1)
		go func() {
			_, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t"})
			called <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := session.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want an error that says that it has not waited for the call", err)
		}
		if err := <-called; !errors.Is(err, client.ErrClosed) {
			t.Errorf("the call: %v, want %v", err, client.ErrClosed)
		}
		if synctest.Wait(); len(refused) > 0 {
			t.Errorf("the program was told of refused subscriptions: %q", refused)
		}
	})
}

// A session that ends by itself reports nothing more, even before it is closed.
func TestEventsEndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		over := make(chan struct{})
		_, err := connect(t, s, client.Options{FailFast: true, ProtocolVersion: protocol.LatestLegacy,
			OnEvent: onToolsChanged(func(ctx context.Context, _ *client.Session) {
				<-ctx.Done()
				close(over)
			})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.sendFrame(announcement)
		synctest.Wait()
		s.cut()
		<-over
	})
}

// Without OnEvent, a client makes no subscription.
func TestWithoutOnEventThereIsNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listenServer(acknowledgeOnly)
		if _, err := connect(t, s, client.Options{}, time.Second); err != nil {
			t.Fatal(err)
		}
		s.sendFrame(announcement)
		synctest.Wait()
		if n := len(s.received(protocol.MethodListen)); n > 0 {
			t.Errorf("got %d subscriptions, want none", n)
		}
	})
}

// Each change of the tools is followed by an event, and a list in that event's handler
// contains the change.
//
// Guarantees: G-0021.2
func TestNoChangeIsMissed(t *testing.T) {
	for _, version := range []string{protocol.Latest, protocol.LatestLegacy} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(server.Options{})
			var known atomic.Pointer[[]string]
			n := &network{t: t, server: s}
			defer n.close()
			session, err := connect(t, n.transport(), client.Options{ProtocolVersion: version, OnEvent: onToolsChanged(func(ctx context.Context, session *client.Session) {
				var names []string
				for tool, err := range session.Tools(ctx) {
					if err != nil {
						return // no server: the next one is reported
					}
					names = append(names, tool.Name)
				}
				known.Store(&names)
			})}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"x", "y", "z"} {
				server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
				pass(20 * time.Millisecond) // changes are reported after 10 ms
				if names := known.Load(); names == nil || !slices.Contains(*names, name) {
					t.Errorf("%s: got no event for %s", version, name)
				}
			}
			n.cutAll()
			synctest.Wait()
			server.AddTool(s, protocol.Tool{Name: "meanwhile"}, func(context.Context, struct{}) (string, error) { return "", nil })
			pass(time.Minute)
			if !slices.Contains(*known.Load(), "meanwhile") {
				t.Errorf("%s: got no event for the changes while no server was there", version)
			}
			session.Close(t.Context())
		})
	}
}
