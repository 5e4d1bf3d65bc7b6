package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// wantNothing fails the test if the server sends a frame before the bubble is idle.
func (w *rawPeer) wantNothing() {
	w.t.Helper()
	synctest.Wait()
	if len(w.frames) > 0 {
		w.t.Errorf("got %s, want none", <-w.frames)
	}
}

// withTool returns a server with a tool, so that a change of the tools can be
// announced.
func withTool() *server.Server {
	s := newServer(server.Options{})
	addNamed(s, "first")
	return s
}

const (
	toolsChanged = `"notifications":{"toolsListChanged":true}`
	announcement = `"method":"notifications/tools/list_changed"`
)

// subscriptionID returns the member with which messages name their subscription.
func subscriptionID(id string) string { return `"io.modelcontextprotocol/subscriptionId":` + id }

// listen subscribes to changes of tools, and reads the acknowledgement.
func (w *rawPeer) listen(id string) {
	w.t.Helper()
	w.send(modern(id, "subscriptions/listen", toolsChanged))
	w.want(`"method":"notifications/subscriptions/acknowledged"`, subscriptionID(id), `"notifications":{"toolsListChanged":true}`)
}

// A subscription gets one notification for each change that it was granted, with its
// id.
//
// Guarantees: G-0020.6
func TestSubscriptionGetsOnlyGrantedChanges(t *testing.T) {
	for _, id := range []string{`7`, `"7"`} {
		testenv.Bubble(t, func(t *testing.T) {
			s := withTool()
			w := dial(t, s)
			w.listen(id)
			w.wantNothing()
			for range 2 {
				addNamed(s, "another")
				w.want(announcement, subscriptionID(id))
				w.wantNothing()
			}
		})
	}
}

// Without a granted filter, a modern client gets no notifications of changes.
//
// Guarantees: G-0020.6
func TestClientWithoutGrantedChangesGetsNone(t *testing.T) {
	for name, filter := range map[string]string{
		"empty filter":    `"notifications":{}`,
		"filter is false": `"notifications":{"toolsListChanged":false}`,
		"not offered":     `"notifications":{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["1"]}`,
	} {
		testenv.Bubble(t, func(t *testing.T) {
			s := withTool()
			w := dial(t, s)
			w.send(modern(`1`, "subscriptions/listen", filter))
			w.want(`"method":"notifications/subscriptions/acknowledged"`, `"notifications":{}`)
			addNamed(s, "another")
			if w.wantNothing(); t.Failed() {
				t.Error(name)
			}
		})
	}
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		w := dial(t, s)
		w.ask(modern(`1`, "tools/list", ``))
		addNamed(s, "another")
		w.wantNothing() // no subscription, so no notification
	})
}

func TestMalformedSubscriptionsAreRefused(t *testing.T) {
	w := dial(t, withTool())
	for _, filter := range []string{`"notifications":3`, `"notifications":{"toolsListChanged":"yes"}`} {
		w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "subscriptions/listen", filter))
	}
}

// Each subscription of a client gets each change once. A cancelled one gets no more.
//
// Guarantees: G-0020.6
func TestEachSubscriptionGetsEachChangeOnce(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		one, other := dial(t, s), dial(t, s)
		one.listen(`1`)
		one.listen(`"1"`)
		other.listen(`1`)
		addNamed(s, "another")
		first, second := one.next(), one.next()
		for _, id := range []string{`1`, `"1"`} {
			if mine := subscriptionID(id) + `}`; strings.Contains(first, mine) == strings.Contains(second, mine) {
				t.Errorf("got %s and %s, want one notification for %s", first, second, id)
			}
		}
		other.want(announcement, subscriptionID(`1`))
		one.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		addNamed(s, "yet_another")
		one.want(announcement, subscriptionID(`"1"`))
		other.want(announcement, subscriptionID(`1`))
		one.wantNothing()
		other.wantNothing()
	})
}

// A client that does not read for a while gets one notification for all changes in that
// time, and at most one more that was already being sent.
func TestChangesForASlowClientAreCombined(t *testing.T) {
	for name, begin := range map[string]func(*rawPeer){
		"modern": func(w *rawPeer) { w.listen(`1`) },
		"legacy": func(w *rawPeer) { w.initialize(protocol.Version20251125) },
	} {
		testenv.Bubble(t, func(t *testing.T) {
			s := withTool()
			ours, theirs := inmem.Pipe(inmem.Options{QueueFrames: 1})
			w := dialOn(t, s, ours, theirs)
			ours.Grant(transport.Main, 1)
			begin(w)
			for range 50 {
				addNamed(s, "another")
				addNamed(s, "another")
				pass(10 * time.Millisecond)
			}
			pass(time.Second) // a link may be busy for that long
			ours.Grant(transport.Main, cap(w.frames))
			w.want(announcement)
			w.want(announcement)
			if w.wantNothing(); t.Failed() {
				t.Error(name)
			}
			addNamed(s, "another")
			w.want(announcement)
		})
	}
}

// A client that was busy is told of each list that has changed meanwhile.
//
// Guarantees: G-0020.6
func TestASlowClientHearsOfAllLists(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		addPrompt := func(name string) {
			server.AddPrompt(s, protocol.Prompt{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
		}
		addPrompt("first")
		ours, theirs := inmem.Pipe(inmem.Options{QueueFrames: 1})
		w := dialOn(t, s, ours, theirs)
		ours.Grant(transport.Main, 1)
		w.send(modern(`1`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true}`))
		w.want(`"method":"notifications/subscriptions/acknowledged"`)
		addNamed(s, "fills")
		for i := range 3 {
			pass(20 * time.Millisecond)
			addNamed(s, "another")
			addPrompt(fmt.Sprint("another ", i))
		}
		pass(time.Second)
		ours.Grant(transport.Main, cap(w.frames))
		pass(time.Second)
		tools, prompts := 0, 0
		for len(w.frames) > 0 {
			switch frame := w.next(); {
			case strings.Contains(frame, announcement):
				tools++
			case strings.Contains(frame, `"method":"notifications/prompts/list_changed"`):
				prompts++
			}
		}
		if tools != 2 || prompts != 1 {
			t.Errorf("it has heard of tools %d times, and of prompts %d times; want 2 and 1", tools, prompts)
		}
	})
}

// A cancelled subscription gets no result, and its id can be used again.
//
// Guarantees: G-0020.7
func TestCancelledSubscriptionGetsNoResponse(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		w := dial(t, s)
		w.listen(`7`)
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		w.wantNothing()
		addNamed(s, "another")
		w.wantNothing()
		w.listen(`7`) // the id can be used again
	})
}

// An observedLink shows each frame before it is sent.
type observedLink struct {
	transport.Link
	sending func(frame string)
}

func (o *observedLink) Send(out transport.Outbound) error {
	o.sending(string(out.Frame))
	return o.Link.Send(out)
}

// A client that has the acknowledgement gets every change from then on, even one that
// happens at the same moment.
//
// Guarantees: G-0020.6, G-0021.2
func TestChangeDuringAcknowledgementIsReported(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		ours, theirs := inmem.Pipe(inmem.Options{})
		w := dialOn(t, s, ours, &observedLink{theirs, func(frame string) {
			if strings.Contains(frame, "acknowledged") {
				addNamed(s, "meanwhile")
			}
		}})
		ours.Grant(transport.Main, cap(w.frames))
		w.listen(`7`)
		w.want(announcement, subscriptionID(`7`))
		w.wantNothing()
	})
}

// A halfDuplexLink lets the test report that the peer sends nothing more.
type halfDuplexLink struct {
	transport.Link
	receiver transport.Receiver
}

func (h *halfDuplexLink) Bind(r transport.Receiver) {
	h.receiver = r
	h.Link.Bind(r)
}

// When the server closes or the client's input ends, each subscription ends with a
// result, and then with a cancellation, because the client may wait for either.
//
// Guarantees: G-0020.7
func TestSubscriptionsEndWithAResult(t *testing.T) {
	for name, end := range map[string]func(*server.Server, *halfDuplexLink){
		"the server is closed": func(s *server.Server, _ *halfDuplexLink) { s.Close(context.Background()) },
		"the input has ended":  func(_ *server.Server, link *halfDuplexLink) { link.receiver.Ended() },
	} {
		testenv.Bubble(t, func(t *testing.T) {
			s := withTool()
			ours, theirs := inmem.Pipe(inmem.Options{})
			link := &halfDuplexLink{Link: theirs}
			w := dialOn(t, s, ours, link)
			ours.Grant(transport.Main, cap(w.frames))
			w.listen(`"a"`)
			w.listen(`2`)
			end(s, link)
			ends := w.next() + w.next() + w.next() + w.next()
			for _, id := range []string{`"a"`, `2`} {
				result := strings.Index(ends, `"id":`+id+`,"result":{"_meta":{`)
				cancelled := strings.Index(ends, `"notifications/cancelled","params":{"requestId":`+id+`,"reason":"closing"}`)
				if result < 0 || cancelled < result || !strings.Contains(ends, subscriptionID(id)) {
					t.Errorf("%s: got %s, want the result of %s, then its cancellation", name, ends, id)
				}
			}
			if !strings.Contains(ends, `"resultType":"complete"`) || !strings.Contains(ends, protocol.MetaServerInfo) {
				t.Errorf("%s: got %s, want %q in it and %v in it", name, ends, `"resultType":"complete"`, protocol.MetaServerInfo)
			}
		})
	}
}

// If the tools change while the server closes, a subscription still ends with its result
// and its cancellation.
//
// Guarantees: G-0020.7
func TestSubscriptionEndsWithAResultDuringAChange(t *testing.T) {
	for range 50 {
		testenv.Bubble(t, func(t *testing.T) {
			s := withTool()
			w := dial(t, s)
			w.listen(`1`)
			synctest.Wait()
			go addNamed(s, "another")
			s.Close(context.Background())
			last := w.next()
			for strings.Contains(last, announcement) {
				last = w.next()
			}
			if after := w.next(); !strings.Contains(last, `"result":{`) || !strings.Contains(after, protocol.NotificationCancelled) {
				t.Fatalf("the last messages are %s and %s, want a result and a cancellation", last, after)
			}
		})
	}
}

// A legacy client gets no notifications before it has sent notifications/initialized,
// and then one for the changes up to there.
//
// Guarantees: G-0021.3
func TestLegacyClientsGetChangesOnceInitialized(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		w := dial(t, s)
		addNamed(s, "before")
		w.wantNothing()
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
		w.want(`"id":"init"`)
		addNamed(s, "between")
		addNamed(s, "and_again")
		w.wantNothing()
		w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		w.want(announcement) // one for both changes
		w.wantNothing()
		for range 2 {
			addNamed(s, "another")
			if frame := w.next(); !strings.Contains(frame, announcement) || strings.Contains(frame, "_meta") {
				t.Errorf("got %s, want %v in it and no %q in it", frame, announcement, "_meta")
			}
			w.wantNothing()
		}
	})
}

// A legacy client gets no notification if nothing has changed since initialize.
func TestLegacyClientGetsNothingWithoutAChange(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		w := dial(t, withTool())
		w.initialize(protocol.Version20251125)
		w.wantNothing()
	})
}

// A legacy client gets no notification of tools if it was not offered tools.
func TestLegacyClientsGetChangesOfOfferedListsOnly(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		addNamed(s, "a")
		w.wantNothing()
	})
}

// A legacy client gets no notification of a list whose capability was declared without
// listChanged.
//
// Guarantees: G-0029.4
func TestLegacyClientsGetOnlyDeclaredChanges(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{Capabilities: protocol.ServerCapabilities{
			Tools: &protocol.ListCapability{}, Prompts: &protocol.ListCapability{}, Resources: &protocol.ResourcesCapability{},
		}})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		addNamed(s, "a")
		server.AddPrompt(s, protocol.Prompt{Name: "a"}, func(context.Context, struct{}) (string, error) { return "", nil })
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
		w.wantNothing()
		pass(time.Second)
		w.wantNothing()
	})
}

// A client gets at most one notification of changes in 10 ms.
//
// Guarantees: G-0029.4
func TestChangesAreReportedAtMostOnceInTenMilliseconds(t *testing.T) {
	for name, begin := range map[string]func(*rawPeer){
		"modern": func(w *rawPeer) { w.listen(`1`) },
		"legacy": func(w *rawPeer) { w.initialize(protocol.Version20251125) },
	} {
		testenv.Bubble(t, func(t *testing.T) {
			s := withTool()
			w := dial(t, s)
			begin(w)
			synctest.Wait()
			for range 100 { // 100 ms in total
				addNamed(s, "another")
				pass(time.Millisecond)
			}
			pass(time.Second)
			if n := len(w.frames); n < 9 || n > 10 {
				t.Errorf("%s: got %d messages, want 9 or 10", name, n)
			}
		})
	}
}

// A middleware has the whole params of a listening request as long as that lasts.
func TestAMiddlewareKeepsTheMetaOfAListeningRequest(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		metas := make(chan protocol.Meta, 2)
		s := newServer(server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				result, err := next(ctx, r)
				if listens, ok := r.Params.(*protocol.ListenParams); ok {
					metas <- listens.Meta
				}
				return result, err
			}
		}}})
		addNamed(s, "first")
		dial(t, s).listen(`1`)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-metas; got[protocol.MetaProtocolVersion] == nil {
			t.Errorf("after the end: got the _meta %v, want that of the request", got)
		}
	})
}

// A server that does not offer subscriptions to resources grants none, although the client may read the resource.
//
// Guarantees: G-0020.6
func TestSubscriptionsThatAreNotOfferedAreNotGranted(t *testing.T) {
	s := newServer(server.Options{})
	server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "a", nil })
	w := dial(t, s)
	w.send(modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a"],"resourcesListChanged":true}`))
	w.want(`"method":"notifications/subscriptions/acknowledged"`, `"notifications":{"resourcesListChanged":true}`)
}
