package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// talker is a server whose tool "talk" logs three messages, and whose tool "hold" logs one when it is told to.
type talker struct {
	*server.Server
	held, speak, done chan struct{}
}

func newTalker() *talker {
	s := &talker{server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{LoggerName: "talker"}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	server.AddTool(s.Server, protocol.Tool{Name: "talk"}, func(ctx context.Context, _ struct{}) (string, error) {
		log := server.Logger(ctx)
		log.Debug("one")
		log.Info("two")
		log.Error("three")
		return "", nil
	})
	server.AddTool(s.Server, protocol.Tool{Name: "hold"}, func(ctx context.Context, _ struct{}) (string, error) {
		s.held <- struct{}{}
		for range s.speak {
			server.Logger(ctx).Error("held")
			s.done <- struct{}{}
		}
		return "", nil
	})
	return s
}

// A listener is a client that keeps the log messages that it gets.
type listener struct {
	*client.Session
	got []string
}

func (f *fleet) listener(version string, level protocol.LogLevel) *listener {
	l := new(listener)
	l.Session = f.client(version, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			if l.got = append(l.got, fmt.Sprintf("%s %s", m.Level, m.Data)); m.Logger != "talker" {
				f.t.Errorf("the logger is %q", m.Logger)
			}
		}
	}})
	if level != "" {
		failOn(f.t, l.SetLogLevel(timeout(f.t), level))
	}
	return l
}

// heard returns what came since the last time. Call it in a bubble.
func (l *listener) heard() string {
	synctest.Wait()
	defer func() { l.got = nil }()
	return strings.Join(l.got, ", ")
}

// Log messages of a call come to its client before its result, from the level that it wants, in order.
//
// Guarantees: G-0088.16
func TestLogMessagesOfACall(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, back, map[string]*server.Server{"a": newTalker().Server})
			for level, want := range map[protocol.LogLevel]string{
				protocol.LogDebug: `debug "one", info "two", error "three"`, protocol.LogWarning: `error "three"`, "": "",
			} {
				l := f.listener(front, level)
				if _, err := client.Call[string](timeout(t), l.Session, "a__talk", nil); err != nil {
					t.Fatal(err)
				}
				if got := l.heard(); got != want {
					t.Errorf("%q: got %s, want %s", level, got, want)
				}
			}
		})
	})
}

// hold makes each listener call the tool that waits, one after the other, so that all are in flight. The channel gets how each call has ended.
func (s *talker) hold(t *testing.T, all ...*listener) (over chan error) {
	over = make(chan error, len(all))
	for _, l := range all {
		go func() {
			_, err := client.Call[string](timeout(t), l.Session, "a__hold", nil)
			over <- err
		}()
		<-s.held
	}
	return over
}

// A message that may be about the calls of several clients is for each of them that wants it, and one outside of calls for all sessions.
//
// Guarantees: G-0088.16
func TestLogMessagesOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTalker()
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s.Server})
		one, other := f.listener(protocol.LatestLegacy, protocol.LogDebug), f.listener(protocol.LatestLegacy, protocol.LogError)
		idle := f.listener(protocol.LatestLegacy, protocol.LogDebug)
		over := s.hold(t, one, other)
		s.speak <- struct{}{}
		<-s.done
		if a, b, c := one.heard(), other.heard(), idle.heard(); a != `error "held"` || b != a || c != "" {
			t.Errorf("two calls in flight: got %q and %q, and who has none %q", a, b, c)
		}
		close(s.speak)
		failOn(t, errors.Join(<-over, <-over))
		for session := range s.Sessions() {
			session.Logger().Info("idle")
			session.Logger().Error("trouble")
		}
		if a, b := one.heard(), other.heard(); a != `info "idle", error "trouble"` || b != `error "trouble"` {
			t.Errorf("outside of calls: got %q and %q", a, b)
		}
	})
}

// Nobody gets a message that may be another user's, and it is counted.
//
// Guarantees: G-0088.16
func TestLogMessagesOfSeveralUsers(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		synctest.Test(t, func(t *testing.T) {
			s := newTalker()
			f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s.Server})
			f.identity = "ada"
			ada := f.listener(front, protocol.LogDebug)
			f.identity = "bob"
			bob := f.listener(front, protocol.LogDebug)
			over := s.hold(t, ada, bob)
			s.speak <- struct{}{}
			<-s.done
			if a, b, n := ada.heard(), bob.heard(), f.Report().Unclaimed; a != "" || b != "" || n != 1 {
				t.Errorf("two calls in flight: got %q and %q, and %d are counted", a, b, n)
			}
			close(s.speak)
			failOn(t, errors.Join(<-over, <-over))
			for session := range s.Sessions() {
				session.Logger().Error("trouble")
			}
			want := int64(1)
			if protocol.IsLegacy(front) { // modern clients have no session, so there is nobody to tell
				want = 2
			}
			if a, b, n := ada.heard(), bob.heard(), f.Report().Unclaimed; a != "" || b != "" || n != want {
				t.Errorf("outside of calls: got %q and %q, and %d are counted", a, b, n)
			}
		})
	}
}

// Who has chosen no level is no reason that another user hears nothing of what comes outside of calls.
//
// Guarantees: G-0088.16
func TestLogMessagesBesideAUserWhoWantsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTalker()
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s.Server})
		f.identity = "ada"
		ada := f.listener(protocol.LatestLegacy, protocol.LogDebug)
		f.identity = "bob"
		bob := f.listener(protocol.LatestLegacy, "")
		for _, l := range []*listener{ada, bob} {
			failOn(t, second(client.Call[string](t.Context(), l.Session, "a__talk", nil)))
			l.heard()
		}
		for session := range s.Sessions() {
			session.Logger().Error("trouble")
		}
		if a, b, n := ada.heard(), bob.heard(), f.Report().Unclaimed; a != `error "trouble"` || b != "" || n != 0 {
			t.Errorf("got %q and %q, and %d are counted", a, b, n)
		}
	})
}

// What a server says outside of calls does not reach a user who may see nothing of it, from the next file on, too.
//
// Guarantees: G-0098.14
func TestLogMessagesOfAHiddenServer(t *testing.T) {
	for _, c := range [][2]string{
		{`"policy":[{"who":"group:dev","allow":["a/*"]}]`, `"policy":[{"who":"group:ops","allow":["a/*"]}]`},
		{`"groups":{"ada":{}}`, `"groups":{"ada":{"deny":["a/*"]}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, o := newTalker(), gateway.Options{}
			if strings.HasPrefix(c[0], `"groups"`) {
				o.Server.Middleware = []server.Middleware{atOwnGroup}
			}
			file := func(block string) *mcpjson.File {
				return load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{`+block+`}}`)
			}
			f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{"a": s.Server}, o, file(c[0]))
			f.identity, f.principal = "ada", claims{"groups": {"dev"}}
			ada := f.listener(protocol.LatestLegacy, protocol.LogDebug)
			talk := func() string {
				synctest.Wait()
				for session := range s.Sessions() {
					session.Logger().Error("trouble")
				}
				return ada.heard()
			}
			if _, err := client.Call[string](timeout(t), ada.Session, "a__talk", nil); err != nil {
				t.Fatal(err)
			}
			ada.heard()
			if got := talk(); got != `error "trouble"` {
				t.Errorf("%s: who may see the server got %q", c[0], got)
			}
			f.apply(file(c[1]))
			if got := talk(); got != "" {
				t.Errorf("%s: who may not see the server got %q", c[1], got)
			}
		})
	}
}

// A legacy server is told the level of its clients once, and not with each call; and again when it was replaced.
//
// Guarantees: G-0088.16
func TestALevelIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
			Capabilities: protocol.ServerCapabilities{Logging: &protocol.Capability{}},
			Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if r.Method == protocol.MethodSetLogLevel {
						told++
					}
					return next(ctx, r)
				}
			}},
		})
		server.AddTool(s, protocol.Tool{Name: "who"}, func(context.Context, struct{}) (string, error) { return "me", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		synctest.Wait() // a level that is chosen while a server is connected may be told twice
		l := f.listener(protocol.LatestLegacy, protocol.LogInfo)
		synctest.Wait() // so may the gateway be told by the client, and then the first answer does not wait for the server
		for range 5 {
			callWho(t, l.Session, "a")
		}
		if synctest.Wait(); told != 1 {
			t.Errorf("the server was told %d times", told)
		}
		f.kill("a", true)
		callWho(t, l.Session, "a")
		if synctest.Wait(); told != 2 {
			t.Errorf("with the server that came next, it was told %d times", told)
		}
	})
}

// A legacy server is told when its clients want fewer messages than before, and when nobody wants any.
//
// Guarantees: G-0088.16
func TestALevelThatIsLoweredIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []protocol.LogLevel
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
			Capabilities: protocol.ServerCapabilities{Logging: &protocol.Capability{}},
			Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if params, ok := r.Params.(*protocol.SetLogLevelParams); ok {
						told = append(told, params.Level)
					}
					return next(ctx, r)
				}
			}},
		})
		server.AddTool(s, protocol.Tool{Name: "who"}, func(context.Context, struct{}) (string, error) { return "me", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		one, other := f.listener(protocol.LatestLegacy, protocol.LogDebug), f.client(protocol.LatestLegacy, client.Options{})
		last := func(want protocol.LogLevel) {
			t.Helper()
			synctest.Wait()
			callWho(t, other, "a")
			if synctest.Wait(); len(told) == 0 || told[len(told)-1] != want {
				t.Errorf("the server was told %q, want %q last", told, want)
			}
		}
		last(protocol.LogDebug)
		failOn(t, one.SetLogLevel(timeout(t), protocol.LogError))
		last(protocol.LogError)
		failOn(t, one.Close(timeout(t)))
		last(protocol.LogEmergency)
	})
}

// A server that does not answer when it is told a level is told so once, and delays one call.
//
// Guarantees: G-0088.16
func TestAServerThatDoesNotTakeALevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		hangs := func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.MethodSetLogLevel {
					told++
					<-ctx.Done()
				}
				return next(ctx, r)
			}
		}
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Middleware: []server.Middleware{hangs}, Capabilities: protocol.ServerCapabilities{Logging: &protocol.Capability{}}})
		server.AddTool(s, protocol.Tool{Name: "who"}, func(context.Context, struct{}) (string, error) { return "s", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		l := f.listener(protocol.Latest, protocol.LogDebug)
		for i, want := range []time.Duration{2 * time.Second, 0, 0} {
			if took, away := outcomeOf(t, l.Session, "a__who", nil); took != want || away != "" {
				t.Errorf("call %d takes %v, want %v: %s", i, took, want, away)
			}
		}
		synctest.Wait()
		if told != 1 {
			t.Errorf("it is told %d times", told)
		}
	})
}
