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

// acknowledged is the first message of a subscription.
func (f frame) acknowledged() string {
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` +
		`"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(f.ID) + `}}}`
}

// listening is a modern server that answers subscriptions/listen as it is told.
func listening(listen response) *fakeServer {
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

func lastingly(f frame) []string { return []string{f.acknowledged()} }

// say has the server send a frame on its newest link.
func (s *fakeServer) say(raw string) {
	s.mu.Lock()
	link := s.links[len(s.links)-1]
	s.mu.Unlock()
	link.Send(outbound(raw))
}

// counting connects a client that counts what it is told, for the length of a
// test.
func counting(t *testing.T, s *fakeServer, o client.Options) (*client.Session, *atomic.Int64) {
	t.Helper()
	told := new(atomic.Int64)
	o.OnEvent = onTools(func(context.Context, *client.Session) { told.Add(1) })
	session, err := connect(t, s, o, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return session, told
}

// wantTold checks how often the program was told, once all has come to rest.
func wantTold(t *testing.T, when string, told *atomic.Int64, want int64) {
	t.Helper()
	synctest.Wait()
	if got := told.Load(); got != want {
		t.Errorf("%s: told %d times, want %d", when, got, want)
	}
}

func TestLegacyServerTellsUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(f frame) []string {
			if f.Method != protocol.MethodInitialize {
				return nil
			}
			return f.initialized(protocol.LatestLegacy, `{"tools":{"listChanged":true}}`)
		}}
		session, told := counting(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy})
		wantTold(t, "at first", told, 0)
		for n := range int64(3) {
			s.say(announcement)
			wantTold(t, "of a change", told, n+1)
		}
		reconnect(t, s, session)
		wantTold(t, "of a replacement", told, 4)
		s.say(announcement)
		wantTold(t, "of its change", told, 5)
		if len(s.received(protocol.MethodListen)) > 0 {
			t.Error("a legacy server was asked")
		}
	})
}

// Between the answers and the acknowledgement of a subscription something may
// have changed that nobody has told of.
//
// Guarantees: G-0021.2
func TestModernServerIsAskedToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listening(lastingly)
		session, told := counting(t, s, client.Options{})
		wantTold(t, "of the beginning", told, 1)
		s.say(announcement)
		wantTold(t, "of a change", told, 2)
		reconnect(t, s, session)
		wantTold(t, "of a replacement", told, 3)
		s.say(announcement)
		wantTold(t, "of its change", told, 4)
		listens := s.received(protocol.MethodListen)
		if len(listens) != 2 || listens[0].Link != 1 || listens[1].Link != 2 {
			t.Errorf("asked %v", listens)
		}
		var params protocol.ListenParams
		if err := protocol.Unmarshal(listens[0].Params, &params); err != nil || !params.Notifications.ToolsListChanged {
			t.Errorf("asked %s, %v", listens[0].Params, err)
		}
		pass(time.Hour) // a subscription has no timeout
		if again := s.received(protocol.MethodListen); len(again) != 2 {
			t.Errorf("asked %d times", len(again))
		}
	})
}

// Guarantees: G-0021.2
func TestSubscriptionThatEndsIsMadeAgain(t *testing.T) {
	for name, end := range map[string]response{
		"in good order": func(f frame) []string { return []string{f.acknowledged(), f.result(`{"resultType":"complete"}`)} },
		"by an error":   func(f frame) []string { return []string{f.acknowledged(), f.fault(jsonrpc.CodeInternalError, `null`)} },
	} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			s := listening(func(f frame) []string {
				if first {
					first = false
					return end(f)
				}
				return lastingly(f)
			})
			_, told := counting(t, s, client.Options{})
			wantTold(t, name, told, 1)
			pass(2 * time.Second)
			wantTold(t, name+", again", told, 2)
			s.say(announcement)
			wantTold(t, name+", of a change", told, 3)
			if n := len(s.received(protocol.MethodListen)); n != 2 {
				t.Errorf("%s: asked %d times", name, n)
			}
		})
	}
}

// Over HTTP a subscription can be lost, or refused, alone.
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
		"a method that is not found": {func(to transport.Receiver, o transport.Outbound) {
			fault := &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}
			to.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 404, Fault: fault}, Unsent: true})
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := modernServer(nil)
			t.Cleanup(s.close)
			asked := 0
			session, err := connect(t, meddling(s, protocol.MethodListen, func(to transport.Receiver, o transport.Outbound) {
				asked++
				test.answer(to, o)
			}), client.Options{OnEvent: onTools(func(context.Context, *client.Session) {})}, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Minute)
			synctest.Wait()
			if asked == 1 == test.again || asked > 60 {
				t.Errorf("%s: asked %d times", name, asked)
			}
			if epoch := session.Conn().Status().Epoch; epoch != 1 {
				t.Errorf("%s: the link was lost as well", name)
			}
		})
	}
}

// A subscription that has lasted is made again soon, however many there were.
func TestDelaysBeginAnewWithASubscriptionThatLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listening(lastingly)
		counting(t, s, client.Options{})
		for n := 2; n < 20; n++ {
			pass(time.Minute)
			asked := s.received(protocol.MethodListen)
			s.say(asked[len(asked)-1].result(`{}`))
			pass(2 * time.Second)
			if asked := s.received(protocol.MethodListen); len(asked) != n {
				t.Fatalf("asked %d times, want %d", len(asked), n)
			}
		}
	})
}

// Guarantees: G-0021.2
func TestServerWithoutListenIsRarelyAsked(t *testing.T) {
	for name, test := range map[string]struct {
		listen      response
		least, most int // in ten minutes
	}{
		"overloaded":           {withFault(jsonrpc.CodeInternalError, `null`), 15, 60},
		"ending at once":       {func(f frame) []string { return []string{f.acknowledged(), f.result(`{}`)} }, 15, 60},
		"not knowing the word": {withFault(jsonrpc.CodeMethodNotFound, `null`), 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := listening(test.listen)
			counting(t, s, client.Options{})
			pass(10 * time.Minute)
			if n := len(s.received(protocol.MethodListen)); n < test.least || n > test.most {
				t.Errorf("%s: asked %d times", name, n)
			}
		})
	}
}

// Each server is asked once, and its coming told once, whatever it answers.
//
// Guarantees: G-0021.2
func TestReplacementWithoutListenIsReportedOnce(t *testing.T) {
	for name, listen := range map[string]response{
		"not knowing the word": withFault(jsonrpc.CodeMethodNotFound, `null`),
		"overloaded":           withFault(jsonrpc.CodeInternalError, `null`),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := listening(listen)
			session, told := counting(t, s, client.Options{})
			pass(5 * time.Minute)
			wantTold(t, name, told, 0)
			for n := range int64(2) {
				reconnect(t, s, session)
				pass(5 * time.Minute)
				wantTold(t, name+", replaced", told, n+1)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{protocol.MethodDiscover: `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`})
		session, told := counting(t, s, client.Options{})
		wantTold(t, "with tools that stay", told, 0)
		reconnect(t, s, session)
		wantTold(t, "with tools that stay, replaced", told, 1)
		if n := len(s.received(protocol.MethodListen)); n > 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestChangesThatComeTogetherAreToldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		var told atomic.Int64
		proceed := make(chan struct{})
		_, err := connect(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy, OnEvent: onTools(func(context.Context, *client.Session) {
			told.Add(1)
			<-proceed
		})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			s.say(announcement)
			synctest.Wait()
		}
		wantTold(t, "while being told", &told, 1)
		close(proceed)
		wantTold(t, "after that", &told, 2)
	})
}

// Guarantees: G-0021.2
func TestCloseEndsTheTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listening(lastingly)
		ended := errors.New("not told")
		session, err := connect(t, s, client.Options{OnEvent: onTools(func(ctx context.Context, s *client.Session) {
			<-ctx.Done()
			pass(50 * time.Millisecond) // it takes its time
			ended = ctx.Err()
		})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := session.Close(t.Context()); err != nil || !errors.Is(ended, context.Canceled) {
			t.Errorf("got %v, %v", err, ended)
		}
		cancelled := s.received(protocol.NotificationCancelled)
		if listens := s.received(protocol.MethodListen); len(listens) != 1 || len(cancelled) != 1 ||
			string(cancelled[0].Params) != `{"requestId":`+string(listens[0].ID)+`,"reason":"cancelled"}` {
			t.Errorf("the server was told %v", cancelled)
		}
	})
}

// A session that ends by itself tells nothing more, though nobody has closed it.
func TestTellingEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		over := make(chan struct{})
		_, err := connect(t, s, client.Options{FailFast: true, ProtocolVersion: protocol.LatestLegacy,
			OnEvent: onTools(func(ctx context.Context, _ *client.Session) {
				<-ctx.Done()
				close(over)
			})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.say(announcement)
		synctest.Wait()
		s.cut()
		<-over
	})
}

func TestNobodyIsToldWhoDoesNotWantIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listening(lastingly)
		if _, err := connect(t, s, client.Options{}, time.Second); err != nil {
			t.Fatal(err)
		}
		s.say(announcement)
		synctest.Wait()
		if n := len(s.received(protocol.MethodListen)); n > 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

// What is told can be acted on: the callback lists the tools that there are.
//
// Guarantees: G-0021.2
func TestNoChangeIsMissed(t *testing.T) {
	for _, version := range []string{protocol.Latest, protocol.LatestLegacy} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(server.Options{})
			var known atomic.Pointer[[]string]
			n := &network{t: t, server: s}
			defer n.close()
			session, err := connect(t, n.transport(), client.Options{ProtocolVersion: version, OnEvent: onTools(func(ctx context.Context, session *client.Session) {
				var names []string
				for tool, err := range session.Tools(ctx) {
					if err != nil {
						return // there is no server: the next one is told of
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
				pass(20 * time.Millisecond) // changes are told after 10
				if names := known.Load(); names == nil || !slices.Contains(*names, name) {
					t.Errorf("%s: %s was not told", version, name)
				}
			}
			n.cutAll()
			synctest.Wait()
			server.AddTool(s, protocol.Tool{Name: "meanwhile"}, func(context.Context, struct{}) (string, error) { return "", nil })
			pass(time.Minute)
			if !slices.Contains(*known.Load(), "meanwhile") {
				t.Errorf("%s: what changed meanwhile was not told", version)
			}
			session.Close(t.Context())
		})
	}
}
