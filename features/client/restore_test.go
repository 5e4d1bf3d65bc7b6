package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// events collects the events of a session, in words.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) on(_ context.Context, _ *client.Session, event client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, describe(event))
}

// want checks the events since its last call, once the bubble is idle.
func (e *events) want(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.all, want) {
		t.Errorf("%s: got the events %q, want %q", when, e.all, want)
	}
	e.all = nil
}

// sentSince returns the methods and subjects of the frames that the server got after
// the first n.
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
			sent = append(sent, fmt.Sprintf("listen %t %q", params.Notifications.ToolsListChanged, params.Notifications.ResourceSubscriptions))
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

// grantingServer returns a modern server that grants each subscription in full.
func grantingServer() *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodDiscover:
			return []string{f.result(`{"supportedVersions":["2026-07-28"],"capabilities":` + modernCapabilities + `}`)}
		case protocol.MethodListen:
			return []string{f.grants()}
		default:
			return allAnswers(protocol.Latest)(f)
		}
	}}
}

// grants returns the acknowledgement of all that a subscription asks for.
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

// A new legacy server gets the log level and the subscriptions of the one before, in a
// fixed order. The program then gets Restored with what failed.
//
// Guarantees: G-0030.1, G-0030.2
func TestLegacyServerIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: reported.on})
		reported.want(t, "connected")
		if got := sentSince(s, 2); !slices.Equal(got, []string{"logging/setLevel"}) {
			t.Errorf("the first server got %q, want %v", got, []string{"logging/setLevel"})
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
		reported.want(t, "after the gap", "lost", "restored but for 1")
		want := []string{"initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe file:///a", "resources/subscribe file:///b"}
		if got := sentSince(s, before); !slices.Equal(got, want) {
			t.Errorf("the second server got %q, want %q", got, want)
		}
		levels := s.received(protocol.MethodSetLogLevel)
		if last := levels[len(levels)-1]; !strings.Contains(string(last.Params), `"error"`) {
			t.Errorf("it got the log level %s, want %q in it", last.Params, `"error"`)
		}
		s.sendFrame(updated("file:///a/b"))
		reported.want(t, "after an update", "updated file:///a/b")
	})
}

// A new modern server gets the subscriptions of the one before, and requests keep the
// log level.
//
// Guarantees: G-0030.1
func TestModernServerIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := grantingServer()
		session, err := connect(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: reported.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported.want(t, "connected", "tools")
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
			t.Error(err)
		}
		reported.want(t, "after Subscribe")
		before := s.count()
		reconnect(t, s, session)
		reported.want(t, "after the gap", "lost", "restored but for 0")
		if got, want := sentSince(s, before), []string{"server/discover", `listen true ["file:///a"]`}; !slices.Equal(got, want) {
			t.Errorf("the second server got %q, want %v", got, want)
		}
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Error(err)
		}
		lists := s.received(protocol.MethodListTools)
		if level := metaOf(t, lists[0])[protocol.MetaLogLevel]; string(level) != `"info"` {
			t.Errorf("a request has the log level %s, want %q", level, `"info"`)
		}
	})
}

// When the set of subscriptions changes, the earlier listen continues until a second after the new one
// is acknowledged, and no change is reported for it. If many continue so, the changes count as missed.
//
// Guarantees: G-0030.4
func TestOneListenForAllThatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := grantingServer()
		inner, slow := s.answer, false
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodListen && slow {
				if n := len(s.received(protocol.NotificationCancelled)); n > 0 {
					t.Errorf("%d listens were cancelled before the new one was acknowledged, want none", n)
				}
				pass(time.Second)
			}
			return inner(f)
		}
		session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported.want(t, "connected", "tools")
		slow = true
		began := time.Now()
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil || time.Since(began) != time.Second {
			t.Errorf("Subscribe returned %v after %v", err, time.Since(began))
		}
		reported.want(t, "after Subscribe")
		slow = false
		if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///a"}); err != nil {
			t.Error(err)
		}
		reported.want(t, "after Unsubscribe")
		passAll(time.Second)
		want := []string{"server/discover", "listen true []", `listen true ["file:///a"]`, "listen true []", "notifications/cancelled", "notifications/cancelled"}
		if got := sentSince(s, 0); !slices.Equal(got, want) {
			t.Errorf("the server got %q, want %q", got, want)
		}
		var missed []string
		for i, uri := range []string{"a", "b", "c", "d", "e"} {
			if i == 4 {
				missed = []string{"tools", "updated file:///a", "updated file:///b", "updated file:///c", "updated file:///d", "updated file:///e"}
			}
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///" + uri}); err != nil {
				t.Error(err)
			}
			reported.want(t, "after "+uri, missed...)
		}
	})
}

// Subscribe fails if the server does not grant the subscription.
func TestSubscriptionThatIsNotGranted(t *testing.T) {
	for name, test := range map[string]struct {
		listen response
		want   error
	}{
		"less":     {func(f frame) []string { return []string{f.acknowledged()} }, nil},
		"an error": {withFault(-32601, `null`), client.ErrUnsupported},
		"silence":  {noResponse, client.ErrTimedOut},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := grantingServer()
			s.on(protocol.MethodListen, func(f frame, _ func(frame) []string) []string { return test.listen(f) })
			session, err := connect(t, s, client.Options{}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			err = session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"})
			var failed *client.CallError
			if !errors.As(err, &failed) || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%s: got %v", name, err)
			}
			synctest.Wait() // the subscription is cancelled
			before := s.count()
			reconnect(t, s, session)
			synctest.Wait()
			if got := sentSince(s, before); !slices.Equal(got, []string{"server/discover"}) {
				t.Errorf("%s: the next server got %q, want %v", name, got, []string{"server/discover"})
			}
		})
	}
}

// Losses while the program is busy are reported as one, with one Restored at the end.
//
// Guarantees: G-0030.2, G-0030.3
func TestGapsWhileTheProgramIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		busy := make(chan struct{})
		var away time.Duration
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{OnEvent: func(ctx context.Context, session *client.Session, e client.Event) {
			reported.on(ctx, session, e)
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
			s.sendFrame(announcement)
			s.sendFrame(updated("file:///a"))
			s.sendFrame(updated("file:///b"))
		}
		synctest.Wait()
		took := time.Since(began)
		pass(time.Second)
		close(busy)
		reported.want(t, "after three gaps and nine changes", "lost", "restored but for 0", "tools", "updated file:///a", "updated file:///b")
		if away <= 0 || away > took {
			t.Errorf("got an outage of %v in %v, want away > 0 and away <= %v", away, took, took)
		}
	})
}

// A loss that began and ended while the program was busy with something else is reported all the same: first Lost, then
// Restored.
//
// Guarantees: G-0030.2
func TestAGapThatIsOverBeforeTheProgramHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		busy := make(chan struct{})
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{OnEvent: func(ctx context.Context, session *client.Session, e client.Event) {
			reported.on(ctx, session, e)
			<-busy
		}})
		s.sendFrame(announcement)
		reported.want(t, "at first", "tools")
		reconnect(t, s, session)
		reported.want(t, "while the program is busy")
		close(busy)
		reported.want(t, "afterwards", "lost", "restored but for 0")
	})
}

// The Lost event of a server comes before any event of the next one.
//
// Guarantees: G-0030.2
func TestLostComesBeforeWhatTheNextServerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			replies := allAnswers(protocol.LatestLegacy)(f)
			if f.Method == protocol.MethodInitialize && f.Link == 2 {
				replies = append([]string{announcement}, replies...)
			}
			return replies
		}
		session := openFake(t, s, client.Options{OnEvent: reported.on})
		reconnect(t, s, session)
		synctest.Wait()
		got := reported.all
		if len(got) != 3 || got[0] != "lost" || !slices.Contains(got, "tools") || !slices.Contains(got, "restored but for 0") {
			t.Errorf("got the events %q", got)
		}
	})
}

// If a server sends faster than the program handles it, messages wait in the
// connection, whose limits apply.
//
// Guarantees: G-0030.3
func TestMessagesWaitInTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := make(chan struct{})
		n := 0
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{
			Conn: conn.Tuning{MaxNotifications: 10},
			OnEvent: func(context.Context, *client.Session, client.Event) {
				n++
				<-busy
			},
		})
		for range 100 {
			s.sendFrame(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			synctest.Wait()
		}
		if stats := session.Conn().Stats(); stats.Shed == 0 && stats.Stalls == 0 {
			t.Errorf("got %+v, want dropped messages or stalls", stats)
		}
		close(busy)
		synctest.Wait()
		if n == 0 || n > 100 {
			t.Errorf("got %d events, want 1 to 100", n)
		}
	})
}

// A session can be closed while an event waits for the program.
func TestCloseWhileEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{OnEvent: func(ctx context.Context, s *client.Session, _ client.Event) {
			s.Stop()
			<-ctx.Done()
		}})
		for range 5 {
			s.sendFrame(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		}
		if err := session.Wait(); err != nil {
			t.Error(err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Watch reads the resource at first, after each update and after each gap, and
// unsubscribes at the end.
//
// Guarantees: G-0030.5
func TestWatch(t *testing.T) {
	for name, version := range map[string]string{"legacy": protocol.LatestLegacy, "modern": ""} {
		synctest.Test(t, func(t *testing.T) {
			s := grantingServer()
			if version != "" {
				s = &fakeServer{answer: allAnswers(version)}
			}
			session, err := connect(t, s, client.Options{ProtocolVersion: version}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for contents, err := range session.Watch(t.Context(), "file:///1") {
				if err != nil || contents.Text() != "content" {
					t.Fatalf("%s: got %+v, %v, want %q", name, contents, err, "content")
				}
				switch n++; n {
				case 1:
					s.sendFrame(updated("file:///1/inner"))
				case 2:
					for range 5 { // one read can follow several updates
						s.sendFrame(updated("file:///1"))
					}
					synctest.Wait()
				case 3:
					s.cut()
				case 4:
					s.sendFrame(updated("file:///2"))
					synctest.Wait()
					s.sendFrame(updated("file:///1"))
				}
				if n == 5 {
					break
				}
			}
			synctest.Wait()
			if reads := len(s.received(protocol.MethodReadResource)); reads != 5 {
				t.Errorf("%s: got %d reads, want 5", name, reads)
			}
			before := s.count()
			reconnect(t, s, session)
			synctest.Wait()
			for _, sent := range sentSince(s, before) {
				if strings.HasPrefix(sent, "listen") || strings.HasPrefix(sent, "resources/subscribe") {
					t.Errorf("%s: the next server got %q", name, sent)
				}
			}
		})
	}
}

// A Watch goes on however often the server is lost while it reads.
//
// Guarantees: G-0030.5
func TestWatchOutlivesServersThatDieWhileItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		s.on(protocol.MethodReadResource, func(f frame, before func(frame) []string) []string {
			if f.Link < 6 {
				go s.cut()
				return nil
			}
			return before(f)
		})
		session := openFake(t, s, client.Options{})
		for contents, err := range session.Watch(t.Context(), "file:///1") {
			if err != nil || contents.Text() != "content" || session.Status().Epoch != 6 {
				t.Errorf("got %+v, %v of server %d, want the contents of server 6", contents, err, session.Status().Epoch)
			}
			break
		}
	})
}

// A Watch ends with an error that no other server would avoid, and at the end of its
// context or of the session.
//
// Guarantees: G-0030.5
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{})
		var missing error
		for _, err := range session.Watch(t.Context(), "file:///nothing") {
			missing = err
		}
		if !errors.Is(missing, client.ErrNotFound) {
			t.Errorf("got %v, want %v", missing, client.ErrNotFound)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var ended error
		for _, err := range session.Watch(ctx, "file:///1") {
			ended = err
		}
		if !errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", ended, context.DeadlineExceeded)
		}
		if n := len(s.received(protocol.MethodUnsubscribe)); n != 2 {
			t.Errorf("got %d requests to unsubscribe, want 2", n)
		}
		for contents, err := range session.Watch(t.Context(), "file:///1") {
			if ended = err; contents != nil {
				session.Stop()
			}
		}
		if !errors.Is(ended, client.ErrClosed) {
			t.Errorf("a watch of a session that ends: got %v, want %v", ended, client.ErrClosed)
		}
	})
}

// A server that is lost while the session is restored on it is not reported as Restored, and nor is what failed because of that.
// If it was the first server of the session, its loss is reported.
//
// Guarantees: G-0030.2
func TestServerThatDiesWhileItIsRestoredIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		var dying atomic.Bool
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodSetLogLevel && dying.Load() {
				go s.cut()
				return nil
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}
		dying.Store(true)
		session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: reported.on})
		pass(10 * time.Second)
		reported.want(t, "the first server dies while it is set up, and others while they are", "lost")
		dying.Store(false)
		pass(time.Minute)
		reported.want(t, "then one lives", "restored but for 0")
		for range 20 {
			dying.Store(true)
			s.cut()
			pass(time.Second)
			dying.Store(false)
			pass(time.Minute)
			reported.want(t, "servers died while they were restored", "lost", "restored but for 0")
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A watcher reads once after a gap, and not also after each server that is lost while the session is restored on it.
//
// Guarantees: G-0030.2, G-0030.5
func TestWatchReadsOnceAfterServersThatDieWhileTheyAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dying atomic.Bool
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodSetLogLevel && dying.Load() {
				go s.cut()
				return nil
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}
		session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo})
		ctx, cancel := context.WithCancel(t.Context())
		var reads atomic.Int64
		var watcher sync.WaitGroup
		watcher.Go(func() {
			for _, err := range session.Watch(ctx, "file:///1") {
				if err == nil {
					reads.Add(1)
				}
			}
		})
		pass(time.Minute) // so that the next server is tried at once
		dying.Store(true)
		s.cut()
		pass(time.Second)
		dying.Store(false)
		pass(time.Minute)
		if n := reads.Load(); n != 2 || session.Status().Epoch < 3 {
			t.Errorf("it was read %d times, want twice, on %d servers, want 3 or more", n, session.Status().Epoch)
		}
		cancel()
		watcher.Wait()
	})
}

// Each gap is reported once, even if the next server fails before it is restored.
//
// Guarantees: G-0030.2
func TestEachGapIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodSetLogLevel && f.Link == 4 {
				go s.cut()
				return nil
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}
		session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: reported.on})
		for _, gap := range []string{"the first gap", "the second gap"} {
			reconnect(t, s, session)
			reported.want(t, gap, "lost", "restored but for 0")
		}
		s.cut()
		pass(time.Minute)
		reported.want(t, "a gap with a server in between that failed", "lost", "restored but for 0")
		if epoch := session.Status().Epoch; epoch != 5 {
			t.Errorf("got %d servers, want 5", epoch)
		}
	})
}
