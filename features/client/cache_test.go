package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// cachingServer is a modern server whose results say how long they may be kept. Each result
// contains its number.
type cachingServer struct {
	*fakeServer
	hints     string                   // the cache members of each result
	pages     int                      // the pages of each list
	asked     map[string]int           // requests by method
	away      atomic.Bool              // the server accepts no connection
	refuse    func(method string) bool // whether a method gets an error
	code      int64                    // of that error
	changedAt time.Time                // when the test has reported a change
}

func newCachingServer(hints string) *cachingServer {
	k := &cachingServer{hints: hints, pages: 1, asked: make(map[string]int)}
	k.fakeServer = &fakeServer{answer: k.serve}
	return k
}

// Open implements transport.Transport.
func (k *cachingServer) Open(ctx context.Context) (transport.Link, error) {
	if k.away.Load() {
		return nil, errors.New("nobody is there")
	}
	return k.fakeServer.Open(ctx)
}

const discoveredAll = `{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":` +
	`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}}`

func (k *cachingServer) serve(f frame) []string {
	if f.Method == protocol.MethodDiscover {
		return []string{f.result(discoveredAll)}
	}
	if f.Method == protocol.MethodListen {
		return []string{f.grants()}
	}
	k.asked[f.Method]++
	if k.refuse != nil && k.refuse(f.Method) {
		return []string{f.fault(cmp.Or(k.code, int64(-32602)), `null`)}
	}
	n := k.asked[f.Method]
	var p struct {
		Cursor string `json:"cursor"`
	}
	_ = protocol.Unmarshal(f.Params, &p)
	page, next := 1, ""
	_, _ = fmt.Sscan(p.Cursor, &page)
	if page < k.pages {
		next = fmt.Sprintf(`,"nextCursor":"%d"`, page+1)
	}
	head := `{"resultType":"complete",` + k.hints + next
	name := fmt.Sprintf("%d-%d", page, n)
	switch f.Method {
	case protocol.MethodListTools:
		return []string{f.result(head + `,"tools":[{"name":"` + name + `","inputSchema":{"type":"object"}}]}`)}
	case protocol.MethodListPrompts:
		return []string{f.result(head + `,"prompts":[{"name":"` + name + `"}]}`)}
	case protocol.MethodListResources:
		return []string{f.result(head + `,"resources":[{"name":"` + name + `","uri":"file:///a"}]}`)}
	case protocol.MethodListResourceTemplates:
		return []string{f.result(head + `,"resourceTemplates":[{"name":"` + name + `","uriTemplate":"x://{y}"}]}`)}
	case protocol.MethodReadResource:
		return []string{f.result(head + `,"contents":[{"uri":"file:///a","text":"` + name + `"}]}`)}
	default:
		return nil
	}
}

const forAMinute = `"ttlMs":60000,"cacheScope":"private"`

// cacheable contains a request for each cacheable method. It returns the text of the
// result.
var cacheable = map[string]func(context.Context, *client.Session) (string, error){
	protocol.MethodListTools: func(ctx context.Context, s *client.Session) (string, error) {
		r, err := s.ListTools(ctx, nil)
		if err != nil {
			return "", err
		}
		return r.Tools[0].Name, nil
	},
	protocol.MethodListPrompts: func(ctx context.Context, s *client.Session) (string, error) {
		r, err := s.ListPrompts(ctx, nil)
		if err != nil {
			return "", err
		}
		return r.Prompts[0].Name, nil
	},
	protocol.MethodListResources: func(ctx context.Context, s *client.Session) (string, error) {
		r, err := s.ListResources(ctx, nil)
		if err != nil {
			return "", err
		}
		return r.Resources[0].Name, nil
	},
	protocol.MethodListResourceTemplates: func(ctx context.Context, s *client.Session) (string, error) {
		r, err := s.ListResourceTemplates(ctx, nil)
		if err != nil {
			return "", err
		}
		return r.ResourceTemplates[0].Name, nil
	},
	protocol.MethodReadResource: func(ctx context.Context, s *client.Session) (string, error) {
		r, err := s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "file:///a"})
		if err != nil {
			return "", err
		}
		return r.Text(), nil
	},
}

// wantKept makes every request of cacheable but those for some methods, and checks
// which result of the server comes back.
func wantKept(t *testing.T, what string, s *client.Session, answer int, methods ...string) {
	t.Helper()
	for method, ask := range cacheable {
		if len(methods) > 0 && !strings.Contains(strings.Join(methods, " ")+" ", method+" ") {
			continue
		}
		if got, err := ask(t.Context(), s); err != nil || got != fmt.Sprintf("1-%d", answer) {
			t.Errorf("%s: %s: got %q, %v; want answer %d", what, method, got, err, answer)
		}
	}
}

func openCachingServer(t *testing.T, k *cachingServer, o client.Options) *client.Session {
	t.Helper()
	o.ProtocolVersion = protocol.Latest
	t.Cleanup(k.close)
	s, err := connect(t, k, o, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A result is kept for the lifetime that the server gave it, for requests with equal
// params only, and each caller gets its own copy.
//
// Guarantees: G-0035.1
func TestResultsAreKeptAsTheServerAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCachingServer(forAMinute)
		s := openCachingServer(t, k, client.Options{})
		wantKept(t, "first", s, 1)
		pass(59 * time.Second)
		wantKept(t, "within its lifetime", s, 1)
		if r, err := s.ListTools(t.Context(), nil); err != nil || time.Since(r.Received) != 59*time.Second {
			t.Errorf("received at %v, %v, want %v", r.Received, err, 59*time.Second)
		}
		wantKept(t, "fresh", s.With(client.CallOptions{Fresh: true}), 2)
		pass(30 * time.Second)
		wantKept(t, "after a fresh one", s, 2)
		pass(31 * time.Second)
		wantKept(t, "past its lifetime", s, 3)
		if r, err := s.ListTools(t.Context(), &protocol.ListToolsParams{RequestParams: protocol.RequestParams{Meta: protocol.Meta{"x": []byte("1")}}}); err != nil || r.Tools[0].Name != "1-4" {
			t.Errorf("a request with more params: got %+v, %v, want %q", r, err, "1-4")
		}
		if r, err := s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "file:///b"}); err != nil || r.Text() != "1-4" {
			t.Errorf("another resource: got %+v, %v, want %q", r, err, "1-4")
		}
		r, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Tools[0].Name = "changed by the program"
		wantKept(t, "after the caller has changed its result", s, 3, protocol.MethodListTools)
		s.ClearCache()
		wantKept(t, "cleared", s, 4, protocol.MethodListPrompts, protocol.MethodListResources)
	})
}

// Questions are not kept, whatever the server says of their lifetime: the next request asks the server again.
//
// Guarantees: G-0035.1
func TestQuestionsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCachingServer(forAMinute)
		k.on(protocol.MethodReadResource, func(f frame, _ func(frame) []string) []string {
			k.asked[f.Method]++
			return []string{f.result(`{"resultType":"input_required",` + k.hints + `,"requestState":"s","inputRequests":{"q":{"method":"roots/list","params":{}}}}`)}
		})
		s := openCachingServer(t, k, client.Options{}).With(client.CallOptions{ManualInput: true})
		for range 2 {
			if r, err := s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "file:///a"}); err != nil || r.InputRequired == nil {
				t.Fatalf("got %+v, %v", r, err)
			}
		}
		if n := k.asked[protocol.MethodReadResource]; n != 2 {
			t.Errorf("the server was asked %d times, want 2", n)
		}
	})
}

// A result is not kept if the server gave it no lifetime, if it is of a legacy
// revision, or if the program has no cache.
//
// Guarantees: G-0035.1
func TestResultsWithoutALifetimeAreNotKept(t *testing.T) {
	for name, hints := range map[string]string{
		"none":                 `"cacheScope":"public"`,
		"zero":                 `"ttlMs":0,"cacheScope":"private"`,
		"negative":             `"ttlMs":-1,"cacheScope":"private"`,
		"of a legacy revision": forAMinute,
		"cache disabled":       forAMinute,
	} {
		t.Run(name, func(t *testing.T) {
			k, o := newCachingServer(hints), client.Options{}
			if name == "cache disabled" {
				o.CacheBytes = -1
			}
			var s *client.Session
			if name == "of a legacy revision" {
				inner := k.fakeServer.answer
				k.fakeServer.answer = func(f frame) []string {
					if f.Method == protocol.MethodInitialize {
						return f.initialized(protocol.LatestLegacy, `{"tools":{},"resources":{},"prompts":{}}`)
					}
					return inner(f)
				}
				s = openFake(t, k.fakeServer, o)
			} else {
				s = openCachingServer(t, k, o)
			}
			wantKept(t, "first", s, 1)
			wantKept(t, "second", s, 2)
		})
	}
}

// A notification of a change invalidates what it is about, and nothing else.
//
// Guarantees: G-0035.2
func TestChangesInvalidateKeptResults(t *testing.T) {
	for notification, ended := range map[string][]string{
		`notifications/tools/list_changed"`:                               {protocol.MethodListTools},
		`notifications/prompts/list_changed"`:                             {protocol.MethodListPrompts},
		`notifications/resources/list_changed"`:                           {protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource},
		`notifications/resources/updated","params":{"uri":"file:///a"}`:   {protocol.MethodReadResource},
		`notifications/resources/updated","params":{"uri":"file:///a/b"}`: {protocol.MethodReadResource},
		`notifications/resources/updated","params":{"uri":"file:///b"}`:   {},
	} {
		t.Run(notification, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCachingServer(forAMinute)
				s := openCachingServer(t, k, client.Options{})
				wantKept(t, "first", s, 1)
				k.sendFrame(`{"jsonrpc":"2.0","method":"` + notification + `}`)
				synctest.Wait()
				for method := range cacheable {
					want := 1
					if strings.Contains(strings.Join(ended, " ")+" ", method+" ") {
						want = 2
					}
					wantKept(t, "then", s, want, method)
				}
			})
		})
	}
}

// When the program learns of a change, by middleware or by OnEvent, it no longer gets the kept result.
//
// Guarantees: G-0035.2
func TestWhoLearnsOfAChangeGetsTheNewResult(t *testing.T) {
	for notification, method := range map[string]string{
		`notifications/tools/list_changed"`:                             protocol.MethodListTools,
		`notifications/prompts/list_changed"`:                           protocol.MethodListPrompts,
		`notifications/resources/list_changed"`:                         protocol.MethodListResources,
		`notifications/resources/updated","params":{"uri":"file:///a"}`: protocol.MethodReadResource,
	} {
		for _, who := range []string{"middleware, before", "middleware, behind", "OnEvent"} {
			synctest.Test(t, func(t *testing.T) {
				k := newCachingServer(forAMinute)
				got := make(chan string, 1)
				look := func(s *client.Session) {
					text, err := cacheable[method](t.Context(), s)
					got <- fmt.Sprint(text, " ", err)
				}
				var o client.Options
				if who == "OnEvent" {
					ready := false
					o.OnEvent = func(_ context.Context, s *client.Session, e client.Event) {
						if ready = ready || time.Since(k.changedAt) == 0; ready {
							look(s)
						}
					}
				} else {
					o.Middleware = []client.Middleware{func(next client.Handler) client.Handler {
						return func(ctx context.Context, r *client.Request) (any, error) {
							if !r.Incoming || !strings.HasPrefix(notification, r.Method) {
								return next(ctx, r)
							}
							if who == "middleware, before" {
								look(r.Session)
								return next(ctx, r)
							}
							defer look(r.Session)
							return next(ctx, r)
						}
					}}
				}
				s := openCachingServer(t, k, o)
				synctest.Wait()
				pass(time.Second)
				wantKept(t, "first", s, 1, method)
				wantKept(t, "kept", s, 1, method)
				k.changedAt = time.Now()
				k.sendFrame(`{"jsonrpc":"2.0","method":"` + notification + `}`)
				if got := <-got; got != "1-2 <nil>" {
					t.Errorf("%s, %s: got %s, want the second answer", method, who, got)
				}
			})
		}
	}
}

// With MaxStale, a list is returned while the server is away if it is not older than
// that.
//
// Guarantees: G-0035.5
func TestMaxStaleReturnsOldListsDuringAnOutage(t *testing.T) {
	for name, hints := range map[string]string{"kept": forAMinute, "without a lifetime": `"ttlMs":0,"cacheScope":"private"`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCachingServer(hints)
				k.pages = 3
				patient := client.CallOptions{MaxStale: time.Hour, WaitForReady: true}
				s := openCachingServer(t, k, client.Options{Calls: patient})
				names := func(o client.CallOptions) (string, error) {
					names, err := toolNames(t, s.With(o))
					return strings.Join(names, " "), err
				}
				if got, err := names(patient); err != nil || got != "1-1 2-2 3-3" {
					t.Fatalf("got %s, %v, want %q", got, err, "1-1 2-2 3-3")
				}
				k.away.Store(true)
				k.cut()
				pass(59 * time.Minute)
				if got, err := names(patient); err != nil || got != "1-1 2-2 3-3" {
					t.Errorf("away: got %s, %v, want %q", got, err, "1-1 2-2 3-3")
				}
				r, err := s.ListTools(t.Context(), nil)
				if err != nil || time.Since(r.Received) != 59*time.Minute {
					t.Errorf("got %+v, %v, want %v", r, err, 59*time.Minute)
				}
				if _, err := names(client.CallOptions{}); !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("without MaxStale: got %v, want %v", err, client.ErrUnavailable)
				}
				if _, err := names(client.CallOptions{MaxStale: 58 * time.Minute}); !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("too old: got %v, want %v", err, client.ErrUnavailable)
				}
				pass(2 * time.Minute)
				if _, err := names(client.CallOptions{MaxStale: 100 * time.Hour}); !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("kept too long: got %v, want %v", err, client.ErrUnavailable)
				}
			})
		})
	}
}

// The pages of a list are kept together or not at all, because pages of different times
// do not fit together.
//
// Guarantees: G-0035.3
func TestAListIsKeptWholeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCachingServer(forAMinute)
		k.pages = 3
		s := openCachingServer(t, k, client.Options{})
		want := func(what, want string) {
			t.Helper()
			if got, err := toolNames(t, s); err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s: got %s, %v, want %v", what, got, err, want)
			}
		}
		for range s.Tools(t.Context()) {
			break // only the first page is kept
		}
		pass(30 * time.Second)
		want("begun before", "1-2 2-3 3-4")
		want("again", "1-2 2-3 3-4")
		for tool, err := range s.Tools(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if tool.Name == "1-2" {
				pass(2 * time.Minute) // a range that has begun continues with the same pages
			} else if !strings.HasSuffix(tool.Name, "-3") && !strings.HasSuffix(tool.Name, "-4") {
				t.Errorf("got %s in the second half of the range", tool.Name)
			}
		}
		want("past its lifetime", "1-5 2-6 3-7")
		k.refuse = func(method string) bool { return k.asked[method] == 8 }
		cursor := "2"
		if _, err := s.With(client.CallOptions{Fresh: true}).ListTools(t.Context(), &protocol.ListToolsParams{Cursor: &cursor}); err == nil {
			t.Error("the cursor was accepted, want an error")
		}
		want("after a cursor that is not good any more", "1-9 2-10 3-11")
		k.code = -32603 // some servers have no code of their own for that
		k.refuse = func(method string) bool { return k.asked[method] == 12 }
		if _, err := s.With(client.CallOptions{Fresh: true}).ListTools(t.Context(), &protocol.ListToolsParams{Cursor: &cursor}); err == nil {
			t.Error("the cursor was accepted, want an error")
		}
		want("after another error", "1-13 2-14 3-15")
		var rest []string
		for tool, err := range s.Tools(t.Context(), &protocol.ListToolsParams{Cursor: &cursor}) {
			if err != nil {
				t.Fatal(err)
			}
			rest = append(rest, tool.Name)
		}
		if got := strings.Join(rest, " "); got != "2-16 3-17" {
			t.Errorf("from a cursor: got %s, want what the server says now", got)
		}
	})
}

// The cache holds at most CacheBytes. It drops the results first that were not used for
// the longest time, and each after a day.
//
// Guarantees: G-0035.4
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCachingServer(`"ttlMs":9223372036854775807,"cacheScope":"public"`)
		inner := k.fakeServer.answer
		k.fakeServer.answer = func(f frame) []string {
			if f.Method != protocol.MethodReadResource {
				return inner(f)
			}
			k.asked[f.Method]++
			return []string{f.result(`{"resultType":"complete",` + k.hints + `,"contents":[{"uri":"x","text":"` + strings.Repeat("x", 1000) + `"}]}`)}
		}
		s := openCachingServer(t, k, client.Options{CacheBytes: 64 << 10})
		read := func(i int) {
			t.Helper()
			if _, err := s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: fmt.Sprintf("file:///%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			read(0) // keeps this one in use
			read(i)
		}
		if asked := k.asked[protocol.MethodReadResource]; asked != 100 {
			t.Errorf("the server got %d requests for 100 resources, want 100", asked)
		}
		for i := range 100 {
			read(99 - i)
		}
		if again := k.asked[protocol.MethodReadResource] - 100; again < 60 || again > 80 {
			t.Errorf("a cache of 64 KiB kept %d of 100 results of 1 kB", 100-again)
		}
		before := k.asked[protocol.MethodReadResource]
		pass(24*time.Hour + time.Second)
		if read(0); k.asked[protocol.MethodReadResource] != before+1 {
			t.Error("the result was kept for more than a day, want a new request")
		}
	})
}

// A list is limited in bytes, so a server that sends pages without end causes an error.
//
// Guarantees: G-0035.6
func TestListsAreBoundedInBytes(t *testing.T) {
	testenv.Crowd(t)
	page := strings.Repeat("x", 8<<20)
	n := 0
	fake := &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodInitialize:
			return f.initialized(protocol.LatestLegacy, withTools)
		case protocol.MethodListTools:
			n++
			return []string{f.result(fmt.Sprintf(`{"nextCursor":"%d","tools":[{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}]}`, n, n, page))}
		default:
			return nil
		}
	}}
	names, err := toolNames(t, openFake(t, fake, client.Options{Conn: conn.Tuning{RequestTimeout: 5 * time.Minute}}))
	var limit *protocol.LimitError
	if !errors.As(err, &limit) || limit.Limit != 64<<20 || !strings.Contains(err.Error(), "bytes of tools/list") || len(names) != 7 {
		t.Errorf("got %d pages and %v, want 7 and the limit of bytes", len(names), err)
	}
}

// Results of calls that asked a question are not kept.
//
// Guarantees: G-0035.3
func TestResultsOfCallsThatAskAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCachingServer(forAMinute)
		inner := k.fakeServer.answer
		k.fakeServer.answer = func(f frame) []string {
			if f.Method == protocol.MethodReadResource && !strings.Contains(string(f.Params), "requestState") {
				return []string{f.result(`{"resultType":"input_required","requestState":"s",` + forAMinute + `}`)}
			}
			return inner(f)
		}
		s := openCachingServer(t, k, client.Options{})
		wantKept(t, "first", s, 1, protocol.MethodReadResource)
		wantKept(t, "second", s, 2, protocol.MethodReadResource)
		state := "mine"
		for name, answers := range map[string]protocol.InputParams{
			"a state":   {RequestState: &state},
			"an answer": {InputResponses: protocol.InputResponses{"requestState": &protocol.ElicitResult{Action: "decline"}}},
		} {
			before := k.asked[protocol.MethodReadResource]
			for want := before + 1; want < before+3; want++ {
				r, err := s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "file:///a", InputParams: answers})
				if err != nil || r.Text() != fmt.Sprintf("1-%d", want) {
					t.Errorf("with %s: got %+v, %v, want answer %d", name, r, err, want)
				}
			}
		}
	})
}

// Middleware that makes calls with the options of the view that a range uses gets what the cache has: only the range keeps to its own pages.
//
// Guarantees: G-0035.1
func TestCallsWithinARangeUseTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCachingServer(forAMinute)
		read := cacheable[protocol.MethodReadResource]
		session := openFake(t, s.fakeServer, client.Options{ProtocolVersion: protocol.Latest, Middleware: []client.Middleware{func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				if r.Method == protocol.MethodListTools {
					if _, err := read(ctx, r.Session.With(r.Session.Calls())); err != nil {
						return nil, err
					}
				}
				return next(ctx, r)
			}
		}}})
		if _, err := read(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		if names, err := toolNames(t, session); err != nil || len(names) != 1 {
			t.Errorf("got the tools %q, %v", names, err)
		}
		if n := s.asked[protocol.MethodReadResource]; n != 1 {
			t.Errorf("the resource was read %d times, want once", n)
		}
	})
}
