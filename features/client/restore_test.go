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
	"github.com/bowline-mcp/bowline/protocol"
)

// events collects what a session tells, in words.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) on(_ context.Context, _ *client.Session, event client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, describe(event))
}

// want checks what was told since the last time, once all has come to rest.
func (e *events) want(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.all, want) {
		t.Errorf("%s: told %q, want %q", when, e.all, want)
	}
	e.all = nil
}

// sentSince returns what the server got after the first n frames, methods and what
// they are about.
func sentSince(s *fakeServer, n int) (sent []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.frames[n:] {
		switch f.Method {
		case protocol.MethodSubscribe, protocol.MethodUnsubscribe:
			var params protocol.SubscribeParams
			_ = protocol.Unmarshal(f.Params, &params)
			sent = append(sent, f.Method+" "+params.URI)
		case protocol.MethodListen:
			var params protocol.ListenParams
			_ = protocol.Unmarshal(f.Params, &params)
			sent = append(sent, fmt.Sprintf("listen %t %q", params.Notifications.ToolsListChanged, []string(params.Notifications.ResourceSubscriptions)))
		default:
			sent = append(sent, f.Method)
		}
	}
	return sent
}

func (s *fakeServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frames)
}

const modernCapabilities = `{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true,"listChanged":false},"logging":{}}`

// granting is a modern server that grants what it is asked for.
func granting() *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodDiscover:
			return []string{f.result(`{"supportedVersions":["2026-07-28"],"capabilities":` + modernCapabilities + `}`)}
		case protocol.MethodListen:
			return []string{f.grants()}
		default:
			return everything(protocol.Latest)(f)
		}
	}}
}

// grants acknowledges a subscription to all that it asks for.
func (f frame) grants() string {
	var params protocol.ListenParams
	if err := protocol.Unmarshal(f.Params, &params); err != nil {
		panic(err)
	}
	filter, err := protocol.Marshal(params.Notifications)
	if err != nil {
		panic(err)
	}
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + string(filter) +
		`,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(f.ID) + `}}}`
}

func updated(uri string) string {
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
}

// A new server is asked for all that the one before was asked for, in one order, and
// the program learns of the gap, and of what failed, when that is done.
//
// Guarantees: G-0030.1, G-0030.2
func TestLegacyServerIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told events
		s := &fakeServer{answer: everything(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: told.on})
		told.want(t, "at first")
		if got := sentSince(s, 2); !slices.Equal(got, []string{"logging/setLevel"}) {
			t.Errorf("the first server was asked %q", got)
		}
		for _, uri := range []string{"file:///b", "file:///a", "file:///c"} {
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
				t.Error(err)
			}
		}
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
			t.Error(err)
		}
		if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///c"}); err != nil {
			t.Error(err)
		}
		if err := session.SetLogLevel(t.Context(), protocol.LogError); err != nil {
			t.Error(err)
		}
		before := s.count()
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodSubscribe && strings.Contains(string(f.Params), "file:///b") {
				return []string{f.fault(-32603, `null`)}
			}
			return inner(f)
		}
		reconnect(t, s, session)
		told.want(t, "of the gap", "lost", "restored but for 1")
		want := []string{"initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe file:///a", "resources/subscribe file:///b"}
		if got := sentSince(s, before); !slices.Equal(got, want) {
			t.Errorf("the second server was asked %q", got)
		}
		levels := s.received(protocol.MethodSetLogLevel)
		if last := levels[len(levels)-1]; !strings.Contains(string(last.Params), `"error"`) {
			t.Errorf("it was asked for the level %s", last.Params)
		}
		s.say(updated("file:///a/b"))
		told.want(t, "of an update", "updated file:///a/b")
	})
}

// Guarantees: G-0030.1
func TestModernServerIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told events
		s := granting()
		session, err := connect(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: told.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		told.want(t, "at first", "tools")
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
			t.Error(err)
		}
		told.want(t, "of a subscription")
		before := s.count()
		reconnect(t, s, session)
		told.want(t, "of the gap", "lost", "restored but for 0")
		if got, want := sentSince(s, before), []string{"server/discover", `listen true ["file:///a"]`}; !slices.Equal(got, want) {
			t.Errorf("the second server was asked %q", got)
		}
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Error(err)
		}
		lists := s.received(protocol.MethodListTools)
		if level := metaOf(t, lists[0])[protocol.MetaLogLevel]; string(level) != `"info"` {
			t.Errorf("a request says the log level %s", level)
		}
	})
}

// While the union of what is wanted changes, the request before goes on until the new
// one is acknowledged, and nothing counts as changed.
//
// Guarantees: G-0030.4
func TestOneListenForAllThatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told events
		s := granting()
		inner, slow := s.answer, false
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodListen && slow {
				if n := len(s.received(protocol.NotificationCancelled)); n > 0 {
					t.Errorf("%d were cancelled before the new one was acknowledged", n)
				}
				pass(time.Second)
			}
			return inner(f)
		}
		session, err := connect(t, s, client.Options{OnEvent: told.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		told.want(t, "at first", "tools")
		slow = true
		began := time.Now()
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil || time.Since(began) != time.Second {
			t.Errorf("Subscribe returned %v after %v", err, time.Since(began))
		}
		told.want(t, "of a subscription")
		slow = false
		if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///a"}); err != nil {
			t.Error(err)
		}
		told.want(t, "of the end of it")
		want := []string{"server/discover", "listen true []", `listen true ["file:///a"]`, "notifications/cancelled", "listen true []", "notifications/cancelled"}
		if got := sentSince(s, 0); !slices.Equal(got, want) {
			t.Errorf("sent %q", got)
		}
	})
}

// A server that grants less, or nothing, is not taken to report.
func TestSubscriptionThatIsNotGranted(t *testing.T) {
	for name, test := range map[string]struct {
		listen response
		want   error
	}{
		"less":     {func(f frame) []string { return []string{f.acknowledged()} }, nil},
		"an error": {withFault(-32601, `null`), client.ErrUnsupported},
		"silence":  {inSilence, client.ErrTimedOut},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := granting()
			inner := s.answer
			s.answer = func(f frame) []string {
				if f.Method == protocol.MethodListen {
					return test.listen(f)
				}
				return inner(f)
			}
			session, err := connect(t, s, client.Options{}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			err = session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"})
			var failed *client.CallError
			if !errors.As(err, &failed) || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%s: got %v", name, err)
			}
			synctest.Wait() // what it gave up is cancelled
			before := s.count()
			reconnect(t, s, session)
			synctest.Wait()
			if got := sentSince(s, before); !slices.Equal(got, []string{"server/discover"}) {
				t.Errorf("%s: the next server was asked %q", name, got)
			}
		})
	}
}

// Losses that come while the program is busy are one, and end with one Restored.
//
// Guarantees: G-0030.2, G-0030.3
func TestGapsWhileTheProgramIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told events
		busy := make(chan struct{})
		var away time.Duration
		s := &fakeServer{answer: everything(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{OnEvent: func(ctx context.Context, session *client.Session, e client.Event) {
			told.on(ctx, session, e)
			if restored, ok := e.(*client.Restored); ok {
				away = restored.Away
			}
			<-busy
		}})
		began := time.Now()
		for range 3 {
			reconnect(t, s, session)
			synctest.Wait()
		}
		for range 3 {
			s.say(announcement)
			s.say(updated("file:///a"))
			s.say(updated("file:///b"))
		}
		synctest.Wait()
		took := time.Since(began)
		pass(time.Second)
		close(busy)
		told.want(t, "of three gaps and nine changes", "lost", "restored but for 0", "tools", "updated file:///a", "updated file:///b")
		if away <= 0 || away > took {
			t.Errorf("away for %v of %v", away, took)
		}
	})
}

// The loss of a server is told before anything that the next one says.
//
// Guarantees: G-0030.2
func TestLostComesBeforeWhatTheNextServerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told events
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			replies := everything(protocol.LatestLegacy)(f)
			if f.Method == protocol.MethodInitialize && f.Link == 2 {
				replies = append([]string{announcement}, replies...)
			}
			return replies
		}
		session := openFake(t, s, client.Options{OnEvent: told.on})
		reconnect(t, s, session)
		synctest.Wait()
		got := told.all
		if len(got) != 3 || got[0] != "lost" || !slices.Contains(got, "tools") || !slices.Contains(got, "restored but for 0") {
			t.Errorf("told %q", got)
		}
	})
}

// What a server says faster than the program takes it waits in the connection, which
// bounds it.
//
// Guarantees: G-0030.3
func TestMessagesWaitInTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := make(chan struct{})
		n := 0
		s := &fakeServer{answer: everything(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{
			Conn: conn.Options{MaxNotifications: 10},
			OnEvent: func(context.Context, *client.Session, client.Event) {
				n++
				<-busy
			},
		})
		for range 100 {
			s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			synctest.Wait()
		}
		if stats := session.Conn().Stats(); stats.Shed == 0 && stats.Stalls == 0 {
			t.Errorf("nothing was held back: %+v", stats)
		}
		close(busy)
		synctest.Wait()
		if n == 0 || n > 100 {
			t.Errorf("told %d times", n)
		}
	})
}

// A session can be closed while an event waits for the program.
func TestCloseWhileEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: everything(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{OnEvent: func(ctx context.Context, s *client.Session, _ client.Event) {
			s.Stop()
			<-ctx.Done()
		}})
		for range 5 {
			s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		}
		if err := session.Wait(); err != nil {
			t.Error(err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Watch reads at first, after each update and after each gap, and leaves nothing
// behind.
//
// Guarantees: G-0030.5
func TestWatch(t *testing.T) {
	for name, version := range map[string]string{"legacy": protocol.LatestLegacy, "modern": ""} {
		synctest.Test(t, func(t *testing.T) {
			s := granting()
			if version != "" {
				s = &fakeServer{answer: everything(version)}
			}
			session, err := connect(t, s, client.Options{ProtocolVersion: version}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for contents, err := range session.Watch(t.Context(), "file:///1") {
				if err != nil || contents.Text() != "content" {
					t.Fatalf("%s: %+v, %v", name, contents, err)
				}
				switch n++; n {
				case 1:
					s.say(updated("file:///1/inner"))
				case 2:
					for range 5 { // one is enough for many
						s.say(updated("file:///1"))
					}
					synctest.Wait()
				case 3:
					s.cut()
				case 4:
					s.say(updated("file:///2"))
					synctest.Wait()
					s.say(updated("file:///1"))
				}
				if n == 5 {
					break
				}
			}
			synctest.Wait()
			if reads := len(s.received(protocol.MethodReadResource)); reads != 5 {
				t.Errorf("%s: read %d times", name, reads)
			}
			before := s.count()
			reconnect(t, s, session)
			synctest.Wait()
			for _, sent := range sentSince(s, before) {
				if strings.HasPrefix(sent, "listen") || strings.HasPrefix(sent, "resources/subscribe") {
					t.Errorf("%s: the next server was asked %q", name, sent)
				}
			}
		})
	}
}

// A Watch ends after an error that no server mends, and at the end of its context.
//
// Guarantees: G-0030.5
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: everything(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{})
		for _, err := range session.Watch(t.Context(), "file:///nothing") {
			if !errors.Is(err, client.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var ended error
		for _, err := range session.Watch(ctx, "file:///1") {
			ended = err
		}
		if !errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("got %v", ended)
		}
		if n := len(s.received(protocol.MethodUnsubscribe)); n != 2 {
			t.Errorf("unsubscribed %d times", n)
		}
	})
}

// Each time without a server is told once: also when the next server dies before
// everything was asked of it.
//
// Guarantees: G-0030.2
func TestEachGapIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told events
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodSetLogLevel && f.Link == 4 {
				go s.cut()
				return nil
			}
			return everything(protocol.LatestLegacy)(f)
		}
		session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: told.on})
		for _, gap := range []string{"the first gap", "the second gap"} {
			reconnect(t, s, session)
			told.want(t, gap, "lost", "restored but for 0")
		}
		s.cut()
		pass(time.Minute)
		told.want(t, "a gap of two servers", "lost", "restored but for 0")
		if epoch := session.Status().Epoch; epoch != 5 {
			t.Errorf("there were %d servers", epoch)
		}
	})
}
