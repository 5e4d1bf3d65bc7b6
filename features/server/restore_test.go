package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A keeperLink is a transport.Keeper that shows the test what it gets.
type keeperLink struct {
	transport.Link
	before    []byte // what the server kept last
	continues bool
	kept      chan string
}

func (l *keeperLink) Keep(state []byte)                    { l.kept <- string(state) }
func (l *keeperLink) Kept() (state []byte, continues bool) { return l.before, l.continues }

// A keptPeer is a raw peer whose server has a keeperLink.
type keptPeer struct {
	*rawPeer
	link *keeperLink
}

// dialKept begins a session whose link is a keeperLink.
func dialKept(t *testing.T, s *server.Server) *keptPeer {
	t.Helper()
	w := dialKeeper(t, s, &keeperLink{}, nil)
	w.initialize(protocol.Version20251125)
	return w
}

// dialContinued continues a session with what an earlier server kept. It sends what the link
// sends: initialize, whose answer it drops, and "initialized".
func dialContinued(t *testing.T, s *server.Server, before []byte, origin *transport.Origin) *keptPeer {
	t.Helper()
	w := dialKeeper(t, s, &keeperLink{before: before, continues: true}, origin)
	w.initialize(protocol.Version20251125)
	return w
}

func dialKeeper(t *testing.T, s *server.Server, link *keeperLink, origin *transport.Origin) *keptPeer {
	t.Helper()
	ours, theirs := inmem.Pipe(inmem.Options{})
	link.Link, link.kept = peertest.From(origin, theirs), make(chan string, 1000)
	w := dialOn(t, s, ours, link)
	ours.Grant(transport.Main, cap(w.frames))
	return &keptPeer{w, link}
}

// acceptKept does what dialKept does, but lets the server accept the link: its handlers may
// return late.
func acceptKept(t *testing.T, s *server.Server, link *keeperLink) *keptPeer {
	t.Helper()
	ours, theirs := inmem.Pipe(inmem.Options{})
	link.Link, link.kept = theirs, make(chan string, 10)
	w := &keptPeer{&rawPeer{t: t, link: ours, frames: make(chan string, 100)}, link}
	ours.Bind(w.rawPeer)
	ours.Grant(transport.Main, cap(w.frames))
	s.Accept(link)
	w.initialize(protocol.Version20251125)
	return w
}

// wantKept checks what the server has kept since the last call.
func (w *keptPeer) wantKept(want ...string) {
	w.t.Helper()
	synctest.Wait()
	for _, want := range want {
		if len(w.link.kept) == 0 {
			w.t.Fatalf("the server has not kept %s", want)
		}
		if got := <-w.link.kept; got != want {
			w.t.Errorf("the server has kept %s, want %s", got, want)
		}
	}
	for len(w.link.kept) > 0 {
		w.t.Errorf("the server has also kept %s", <-w.link.kept)
	}
}

// wantTold checks which notifications came since the last call, in any order: their methods,
// those of resources with their URI.
func (w *keptPeer) wantTold(want ...string) {
	w.t.Helper()
	pass(changeInterval)
	synctest.Wait()
	var got []string
	for len(w.frames) > 0 {
		var m struct {
			Method string `json:"method"`
			Params struct {
				URI string `json:"uri"`
			} `json:"params"`
		}
		w.read(&m)
		got = append(got, strings.TrimSuffix(m.Method+" "+m.Params.URI, " "))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("the client got %q, want %q", got, want)
	}
}

const (
	changeInterval = 10 * time.Millisecond

	toldTools     = protocol.NotificationToolsListChanged
	toldPrompts   = protocol.NotificationPromptsListChanged
	toldResources = protocol.NotificationResourcesListChanged
	toldUpdated   = protocol.NotificationResourcesUpdated + " "
)

func about(method, uri string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"uri":"` + uri + `"}}`
}

func setLevel(level string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"` + level + `"}}`
}

// subscribable returns the options of a server whose clients may subscribe to everything.
func subscribable() server.Options {
	return server.Options{OnSubscribe: func(context.Context, string) error { return nil }}
}

// The link is told to keep the log level and the subscriptions when they change, and at the
// end of initialize. A call, and a request that changes nothing, costs no Keep, nor does the
// end of the session.
//
// Guarantees: G-0074.1
func TestChangesOfASessionAreKept(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o, w := subscribable(), new(keptPeer)
		told := func() { // the process may end while the program is told
			if len(w.link.kept) == 0 {
				t.Error("the program was told before the link has kept the change")
			}
		}
		o.OnLogLevel = func(context.Context, *server.Session) { told() }
		o.OnUnsubscribe = func(_ context.Context, uri string) {
			if uri == "x://b" {
				told()
			}
		}
		s := newServer(o)
		addNamed(s, "t")
		w = dialKept(t, s)
		w.wantKept(`{"v":1}`)
		for _, step := range []struct{ frame, kept string }{
			{setLevel("info"), `{"v":1,"level":"info"}`},
			{setLevel("info"), ``},
			{about(protocol.MethodSubscribe, `x://b`), `{"v":1,"level":"info","subscriptions":["x://b"]}`},
			{about(protocol.MethodSubscribe, `x://\"a\"`), `{"v":1,"level":"info","subscriptions":["x://\"a\"","x://b"]}`},
			{about(protocol.MethodSubscribe, `x://b`), ``},
			{about(protocol.MethodUnsubscribe, `x://c`), ``},
			{about(protocol.MethodUnsubscribe, `x://b`), `{"v":1,"level":"info","subscriptions":["x://\"a\""]}`},
			{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`, ``},
			{setLevel("error"), `{"v":1,"level":"error","subscriptions":["x://\"a\""]}`},
			{setLevel("loud"), ``},
		} {
			w.send(step.frame)
			w.want(`"id":1`)
			if step.kept == "" {
				w.wantKept()
			} else {
				w.wantKept(step.kept)
			}
		}
		s.ResourceUpdated(`x://"a"`)
		w.wantTold(toldUpdated + `x://"a"`)
		w.rawPeer.link.Close(0)
		w.wantKept()
		if sessionOf(s) != nil {
			t.Error("the session has not ended")
		}
	})
}

func sessionOf(s *server.Server) (found *server.Session) {
	for one := range s.Sessions() {
		found = one
	}
	return found
}

// A session that its link continues has the log level and the subscriptions that were kept.
// Its client is told once that everything may have changed, and later of each change.
//
// Guarantees: G-0074.2
func TestSessionIsContinued(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		type key struct{}
		begun, asked, ended := 0, []string{}, []string{}
		s := newServer(server.Options{
			SessionContext: func(ctx context.Context, s *server.Session) context.Context {
				begun++
				return context.WithValue(ctx, key{}, s.Restored())
			},
			OnSubscribe: func(ctx context.Context, uri string) error {
				r := server.RequestFrom(ctx)
				asked = append(asked, fmt.Sprint(uri, " ", r.Origin.Identity, " ", r.Session.Restored(), " ", ctx.Value(key{})))
				return nil
			},
			OnUnsubscribe: func(_ context.Context, uri string) { ended = append(ended, uri) },
		})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			server.Logger(ctx).Info("left out")
			server.Logger(ctx).Warn("logged")
			return "", nil
		})
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
		w := dialContinued(t, s, []byte(`{"subscriptions":["x://b","x://a"],"level":"notice","later":[1],"v":1}`), &transport.Origin{Identity: "ada"})
		w.wantTold(toldTools, toldPrompts, toldResources, toldUpdated+"x://a", toldUpdated+"x://b")
		w.wantKept() // nothing is different from what was kept
		if want := []string{"x://a ada true true", "x://b ada true true"}; !slices.Equal(asked, want) || begun != 1 {
			t.Errorf("OnSubscribe was asked for %q, want %q, and SessionContext %d times, want once", asked, want, begun)
		}
		if session := sessionOf(s); session == nil || !session.Restored() {
			t.Error("the session is not restored")
		}
		s.ResourceUpdated("x://b")
		s.ResourceUpdated("x://c")
		addNamed(s, "another")
		w.wantTold(toldTools, toldUpdated+"x://b")
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		w.want(protocol.NotificationMessage, `logged`)
		w.want(`"id":1`)
		w.send(setLevel("debug"))
		w.want(`"id":1`)
		w.send(about(protocol.MethodUnsubscribe, "x://b"))
		w.want(`"id":1`)
		w.wantKept(`{"v":1,"level":"debug","subscriptions":["x://a","x://b"]}`, `{"v":1,"level":"debug","subscriptions":["x://a"]}`)
		w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) // again
		w.wantTold()
		w.rawPeer.link.Close(0)
		synctest.Wait()
		if want := []string{"x://b", "x://a"}; !slices.Equal(ended, want) {
			t.Errorf("OnUnsubscribe was called for %q, want %q", ended, want)
		}
	})
}

// A session that began here is not restored, whether its link is a Keeper or not.
//
// Guarantees: G-0074.2
func TestNewSessionIsNotRestored(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for _, connect := range []func(*testing.T, *server.Server) *rawPeer{
			func(t *testing.T, s *server.Server) *rawPeer { return dialKept(t, s).rawPeer },
			func(t *testing.T, s *server.Server) *rawPeer {
				w := dial(t, s)
				w.initialize(protocol.Version20251125)
				return w
			},
		} {
			s := withTool()
			w := connect(t, s)
			w.wantNothing()
			if session := sessionOf(s); session == nil || session.Restored() {
				t.Error("the session counts as restored")
			}
		}
	})
}

// A subscription that the client may not have any more is dropped, and no longer kept. The
// client gets one last update of the resource, so that it asks and learns why. What the program
// decides with, OnSubscribe or Visible, sees the identity of the request that continues the
// session.
//
// Guarantees: G-0074.3
func TestSubscriptionsAreRestoredAsFarAsAllowed(t *testing.T) {
	may := func(ctx context.Context, uri string) bool {
		return uri != "x://hers" || server.RequestFrom(ctx).Origin.Identity == "ada"
	}
	for name, o := range map[string]server.Options{
		"OnSubscribe": {OnSubscribe: func(ctx context.Context, uri string) error {
			if !may(ctx, uri) {
				return errors.New("not yours")
			}
			return nil
		}},
		"Visible": {
			Visible:      func(ctx context.Context, f server.Feature) bool { return may(ctx, f.Name) },
			Capabilities: protocol.ServerCapabilities{Resources: &protocol.ResourcesCapability{Subscribe: true}},
		},
		"a panic": {OnSubscribe: func(ctx context.Context, uri string) error {
			if !may(ctx, uri) {
				panicBroken()
			}
			return nil
		}},
	} {
		for _, who := range []string{"ada", "bob"} {
			testenv.Bubble(t, func(t *testing.T) {
				var log bytes.Buffer
				ended := []string{}
				o.Conn.Log = slog.New(slog.NewTextHandler(&log, nil))
				o.OnUnsubscribe = func(_ context.Context, uri string) { ended = append(ended, uri) }
				s := newServer(o)
				for _, uri := range []string{"x://all", "x://hers"} {
					server.AddResource(s, protocol.Resource{URI: uri, Name: "x"}, func(context.Context) (string, error) { return "", nil })
				}
				w := dialContinued(t, s, []byte(`{"v":1,"subscriptions":["x://all","x://hers"]}`), &transport.Origin{Identity: who})
				w.wantTold(toldResources, toldUpdated+"x://all", toldUpdated+"x://hers")
				s.ResourceUpdated("x://all")
				s.ResourceUpdated("x://hers")
				if who == "ada" {
					w.wantTold(toldUpdated+"x://all", toldUpdated+"x://hers")
					w.wantKept()
				} else {
					w.wantTold(toldUpdated + "x://all")
					w.wantKept(`{"v":1,"subscriptions":["x://all"]}`)
				}
				if logged := strings.Contains(log.String(), "refused=1"); logged != (who == "bob") {
					t.Errorf("%s, %s: the log is %q", name, who, &log)
				}
				w.rawPeer.link.Close(0)
				synctest.Wait()
				if want := map[string]int{"ada": 2, "bob": 1}[who]; len(ended) != want {
					t.Errorf("%s, %s: OnUnsubscribe was called for %q, want %d calls", name, who, ended, want)
				}
			})
		}
	}
}

// If the server has no subscriptions any more, none is restored.
//
// Guarantees: G-0074.3
func TestSubscriptionsOfAServerThatHasNone(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
		w := dialContinued(t, s, []byte(`{"v":1,"subscriptions":["x://a"]}`), nil)
		w.wantTold(toldResources, toldUpdated+"x://a")
		s.ResourceUpdated("x://a")
		w.wantTold()
		w.wantKept(`{"v":1}`)
	})
}

// While OnSubscribe decides on the subscriptions of a restored session, the session serves
// other requests. One that is about such a subscription waits, and takes effect after it.
//
// Guarantees: G-0074.3
func TestRequestsWhileSubscriptionsAreRestored(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		goOn, calls := make(chan struct{}), make(chan string, 10)
		s := newServer(server.Options{
			OnSubscribe:   func(_ context.Context, uri string) error { calls <- "on " + uri; <-goOn; return nil },
			OnUnsubscribe: func(_ context.Context, uri string) { calls <- "off " + uri },
		})
		w := dialContinued(t, s, []byte(`{"v":1,"subscriptions":["x://a","x://b"]}`), nil)
		w.send(`{"jsonrpc":"2.0","id":9,"method":"resources/list"}`)
		w.want(`"id":9`)
		w.send(about(protocol.MethodUnsubscribe, "x://b"))
		w.wantNothing()
		w.send(strings.Replace(setLevel("info"), `"id":1`, `"id":2`, 1))
		w.want(`"id":2`)
		w.wantKept(`{"v":1,"level":"info","subscriptions":["x://a","x://b"]}`) // nothing is lost meanwhile
		close(goOn)
		w.want(`"id":1`)
		w.wantTold(toldResources, toldUpdated+"x://a")
		w.wantKept(`{"v":1,"level":"info","subscriptions":["x://a"]}`)
		var got []string
		for len(calls) > 0 {
			got = append(got, <-calls)
		}
		if want := []string{"on x://a", "on x://b", "off x://b"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// If a restored session is lost again before OnSubscribe has decided, its subscriptions stay
// kept, so that they can be restored elsewhere.
//
// Guarantees: G-0074.3
func TestRestoringThatIsInterruptedLosesNothing(t *testing.T) {
	for _, test := range []struct {
		decides error
		after   time.Duration // the session ends after one second
		ended   []string
	}{
		{errors.New("no time"), 0, nil},
		{errors.New("no time"), 2 * time.Second, nil},
		{nil, 0, []string{"x://a", "x://b"}},
		{nil, 2 * time.Second, []string{"x://a", "x://b"}},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			goOn, ended := make(chan struct{}), []string{}
			s := newServer(server.Options{
				Conn: conn.Tuning{StopGrace: time.Second},
				OnSubscribe: func(context.Context, string) error {
					<-goOn
					return test.decides
				},
				OnUnsubscribe: func(_ context.Context, uri string) { ended = append(ended, uri) },
			})
			w := acceptKept(t, s, &keeperLink{before: []byte(`{"v":1,"subscriptions":["x://a","x://b"]}`), continues: true})
			synctest.Wait()
			w.rawPeer.link.Close(0)
			pass(test.after)
			synctest.Wait()
			close(goOn)
			pass(2 * time.Second)
			w.wantKept()
			if slices.Sort(ended); !slices.Equal(ended, test.ended) {
				t.Errorf("%v after %v: OnUnsubscribe was called for %q, want %q", test.decides, test.after, ended, test.ended)
			}
		})
	}
}

// A state that the server cannot read is ignored and logged. The session is restored without
// it, and a new state is kept.
//
// Guarantees: G-0074.4
func TestForeignStateIsIgnored(t *testing.T) {
	many, long := `"x://0"`, strings.Repeat("x", 8<<10)
	for i := range 256 {
		many += fmt.Sprintf(`,"x://%d"`, i+1)
	}
	for name, state := range map[string]string{
		"none":                  "",
		"no JSON":               `{"v":1`,
		"another type":          `[1]`,
		"null":                  `null`,
		"no version":            `{"level":"info","subscriptions":["x://a"]}`,
		"another version":       `{"v":2,"level":"info","subscriptions":["x://a"]}`,
		"unknown level":         `{"v":1,"level":"loud","subscriptions":["x://a"]}`,
		"level of another type": `{"v":1,"level":7,"subscriptions":["x://a"]}`,
		"URI of another type":   `{"v":1,"level":"info","subscriptions":["x://a",7]}`,
		"empty URI":             `{"v":1,"level":"info","subscriptions":["x://a",""]}`,
		"long URI":              `{"v":1,"level":"info","subscriptions":["` + long + `a"]}`,
		"too many URIs":         `{"v":1,"level":"info","subscriptions":[` + many + `]}`,
		"too long":              `{"v":1,"level":"info","subscriptions":["x://a"]}` + strings.Repeat(" ", 16<<10),
	} {
		testenv.Bubble(t, func(t *testing.T) {
			var log bytes.Buffer
			o := subscribable()
			o.OnSubscribe = func(_ context.Context, uri string) error {
				t.Errorf("%s: OnSubscribe was called for %.20q", name, uri)
				return nil
			}
			o.Conn.Log = slog.New(slog.NewTextHandler(&log, nil))
			s := newServer(o)
			server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
				server.Logger(ctx).Error("logged")
				return "", nil
			})
			var before []byte
			if state != "" {
				before = []byte(state)
			}
			w := dialContinued(t, s, before, nil)
			w.wantTold(toldTools, toldResources)
			w.wantKept(`{"v":1}`)
			w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
			w.want(`"id":1`)
			if !sessionOf(s).Restored() {
				t.Errorf("%s: the session is not restored", name)
			}
			if why := map[string]string{
				"another type": "an array", "no version": "its version is 0, want 1", "another version": "its version is 2, want 1", "unknown level": "its log level is unknown",
				"empty URI": "a subscription: uri is missing", "long URI": "8193 bytes, and at most 8192", "too many URIs": "257 subscriptions, which is more than 256",
				"too long": "which is more than 16384", "no JSON": "EOF",
			}[name]; !strings.Contains(log.String(), why) {
				t.Errorf("%s: the log is %q, want %q in it", name, &log, why)
			}
			if logged := strings.Contains(log.String(), "level=WARN"); logged == (state == "") || log.Len() > 1000 {
				t.Errorf("%s: the log is %q", name, &log)
			}
		})
	}
}

// However many subscriptions a client has, and however long their URIs, at most 256 of them and
// 16 KiB are kept.
//
// Guarantees: G-0074.1
func TestWhatIsKeptIsBounded(t *testing.T) {
	for name, uri := range map[string]func(i int) string{
		"many":  func(i int) string { return fmt.Sprintf("x://%d", i) },
		"long":  func(i int) string { return fmt.Sprintf("x://%04d", i) + strings.Repeat("x", 7<<10) },
		"mixed": func(i int) string { return fmt.Sprintf("x://%04d", i) + strings.Repeat("x", i%8<<10) },
		"quoted": func(i int) string {
			return fmt.Sprintf("x://%04d", i) + strings.Repeat(`\u0001`, 100)
		},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			w := dialKept(t, newServer(subscribable()))
			last := ""
			for i := range 300 {
				w.send(about(protocol.MethodSubscribe, uri(i)))
				w.want(`"id":1`)
				w.rawPeer.link.Grant(transport.Main, 1)
			}
			for len(w.link.kept) > 0 {
				last = <-w.link.kept
			}
			var state struct{ Subscriptions []string }
			if err := json.Unmarshal([]byte(last), &state); err != nil {
				t.Fatal(err)
			}
			n := len(state.Subscriptions)
			if len(last) > 16<<10 || n > 256 || name == "many" && n != 256 || n == 0 {
				t.Errorf("%s: the server has kept %d subscriptions in %d bytes", name, n, len(last))
			}
		})
	}
}

// What is kept fills the 16 KiB to the last byte, and has nothing that would need one more.
//
// Guarantees: G-0074.1
func TestWhatIsKeptFillsItsBound(t *testing.T) {
	const most, around = 16 << 10, len(`{"v":1,"subscriptions":["",""]}`)
	for more, want := range map[int]int{0: 2, 1: 1} {
		testenv.Bubble(t, func(t *testing.T) {
			w := dialKept(t, newServer(subscribable()))
			for _, n := range []int{8 << 10, most - around - 8<<10 + more} {
				w.ask(about(protocol.MethodSubscribe, "x:"+strings.Repeat("y", n-2)))
			}
			last := ""
			for len(w.link.kept) > 0 {
				last = <-w.link.kept
			}
			if got := strings.Count(last, `"x:`); got != want || want == 2 && len(last) != most {
				t.Errorf("%d bytes too many: got %d subscriptions in %d bytes, want %d", more, got, len(last), want)
			}
		})
	}
}

// A handler that returns only when its session has ended keeps nothing: the session may go on
// elsewhere, with its subscriptions.
//
// Guarantees: G-0074.1
func TestNothingIsKeptAfterTheEnd(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o, goOn := subscribable(), make(chan struct{})
		o.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.MethodSetLogLevel {
					<-goOn
				}
				return next(ctx, r)
			}
		}}
		s := newServer(o)
		w := acceptKept(t, s, &keeperLink{})
		w.send(about(protocol.MethodSubscribe, `x://a`))
		w.want(`"id":1`)
		w.wantKept(`{"v":1}`, `{"v":1,"subscriptions":["x://a"]}`)
		w.send(setLevel("info"))
		synctest.Wait()
		w.rawPeer.link.Close(0)
		pass(time.Second)
		if sessionOf(s) != nil {
			t.Error("the session has not ended")
		}
		close(goOn)
		w.wantKept()
	})
}

// What is kept last has everything, however many requests change it at the same time.
//
// Guarantees: G-0074.1
func TestConcurrentChangesAreKept(t *testing.T) {
	for range 50 {
		testenv.Bubble(t, func(t *testing.T) {
			w := dialKept(t, newServer(subscribable()))
			var all []string
			for i := range 20 {
				all = append(all, fmt.Sprintf(`"x://%02d"`, i))
				w.send(strings.Replace(about(protocol.MethodSubscribe, strings.Trim(all[i], `"`)), `"id":1`, fmt.Sprintf(`"id":%d`, i), 1))
			}
			synctest.Wait()
			last := ""
			for len(w.link.kept) > 0 {
				last = <-w.link.kept
			}
			if want := `{"v":1,"subscriptions":[` + strings.Join(all, ",") + `]}`; last != want {
				t.Errorf("the server has kept %s, want %s", last, want)
			}
		})
	}
}

// Messages that the link repeats in the name of its client restore a session, too, and neither
// middleware nor Audit sees them.
//
// Guarantees: G-0074.2
func TestImpliedMessagesRestoreASession(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o := subscribable()
		var seen []string
		o.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if !r.Outgoing {
					seen = append(seen, r.Method)
				}
				return next(ctx, r)
			}
		}}
		s := newServer(o)
		ours, theirs := inmem.Pipe(inmem.Options{})
		link := &keeperLink{Link: &implyingLink{theirs}, before: []byte(`{"v":1,"subscriptions":["x://a"]}`), continues: true, kept: make(chan string, 10)}
		w := &keptPeer{dialOn(t, s, ours, link), link}
		ours.Grant(transport.Main, cap(w.frames))
		w.initialize(protocol.Version20251125)
		w.wantTold(toldResources, toldUpdated+"x://a")
		w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":1,"method":"real"}`)
		if !slices.Equal(seen, []string{"real"}) {
			t.Errorf("middleware has seen %q", seen)
		}
	})
}

// An implyingLink marks what opens a session as implied.
type implyingLink struct{ transport.Link }

func (l *implyingLink) Bind(r transport.Receiver) { l.Link.Bind(&implyingReceiver{r}) }

type implyingReceiver struct{ transport.Receiver }

func (r *implyingReceiver) Receive(in transport.Inbound) {
	in.Implied = bytes.Contains(in.Frame, []byte("initialize"))
	r.Receiver.Receive(in)
}
