package server_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// wantNothing checks that the server has nothing more to say, once all that it
// does has come to rest. It is for bubbles.
func (w *wire) wantNothing() {
	w.t.Helper()
	synctest.Wait()
	if len(w.frames) > 0 {
		w.t.Errorf("got %s", <-w.frames)
	}
}

// withTool is a server that offers a tool, so that there is something to tell of.
func withTool() *server.Server {
	s := newServer(server.Options{})
	addNamed(s, "first")
	return s
}

const (
	toolsChanged = `"notifications":{"toolsListChanged":true}`
	announcement = `"method":"notifications/tools/list_changed"`
)

// subscriptionID is how messages of a subscription name it.
func subscriptionID(id string) string { return `"io.modelcontextprotocol/subscriptionId":` + id }

// listen subscribes to changes of tools, and reads the acknowledgement.
func (w *wire) listen(id string) {
	w.t.Helper()
	w.send(modern(id, "subscriptions/listen", toolsChanged))
	w.want(`"method":"notifications/subscriptions/acknowledged"`, subscriptionID(id), `"notifications":{"toolsListChanged":true}`)
}

// Guarantees: G-0020.6
func TestSubscriptionsTellOfWhatTheyWereGranted(t *testing.T) {
	for _, id := range []string{`7`, `"7"`} {
		synctest.Test(t, func(t *testing.T) {
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

// Guarantees: G-0020.6
func TestSubscriptionToNothing(t *testing.T) {
	for name, filter := range map[string]string{
		"of what was not asked for": `"notifications":{}`,
		"of what was refused":       `"notifications":{"toolsListChanged":false}`,
		"of what is not offered":    `"notifications":{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["1"]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
		s := withTool()
		w := dial(t, s)
		w.ask(modern(`1`, "tools/list", ``))
		addNamed(s, "another")
		w.wantNothing() // to a modern client that does not listen
	})
}

func TestSubscriptionsThatCannotBeReadAreRefused(t *testing.T) {
	w := dial(t, withTool())
	for _, filter := range []string{`"notifications":3`, `"notifications":{"toolsListChanged":"yes"}`} {
		w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "subscriptions/listen", filter))
	}
}

// Guarantees: G-0020.6
func TestSeveralSubscriptionsAreToldEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withTool()
		one, other := dial(t, s), dial(t, s)
		one.listen(`1`)
		one.listen(`"1"`)
		other.listen(`1`)
		addNamed(s, "another")
		first, second := one.next(), one.next()
		for _, id := range []string{`1`, `"1"`} {
			if mine := subscriptionID(id) + `}`; strings.Contains(first, mine) == strings.Contains(second, mine) {
				t.Errorf("%s was not told once: %s %s", id, first, second)
			}
		}
		other.want(announcement, subscriptionID(`1`))
		one.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		addNamed(s, "yet another")
		one.want(announcement, subscriptionID(`"1"`))
		other.want(announcement, subscriptionID(`1`))
		one.wantNothing()
		other.wantNothing()
	})
}

// A client that does not read for a while is owed one announcement, not a
// thousand and not none: one more may be under way.
func TestChangesThatComeTogetherAreToldAsOne(t *testing.T) {
	for name, begin := range map[string]func(*wire){
		"modern": func(w *wire) { w.listen(`1`) },
		"legacy": func(w *wire) { w.initialize(protocol.Version20251125) },
	} {
		synctest.Test(t, func(t *testing.T) {
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
			pass(time.Second) // a link that is busy for so long is only that
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

// Guarantees: G-0020.7
func TestCancelledSubscriptionIsOverWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withTool()
		w := dial(t, s)
		w.listen(`7`)
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		w.wantNothing()
		addNamed(s, "another")
		w.wantNothing()
		w.listen(`7`) // the id is free again
	})
}

// An observed link shows each frame before it is sent.
type observed struct {
	transport.Link
	sending func(frame string)
}

func (o *observed) Send(out transport.Outbound) error {
	o.sending(string(out.Frame))
	return o.Link.Send(out)
}

// A client that has the acknowledgement is told of every change from then on, also
// of one that comes at the same moment.
//
// Guarantees: G-0020.6, G-0021.2
func TestChangeDuringAcknowledgementIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withTool()
		ours, theirs := inmem.Pipe(inmem.Options{})
		w := dialOn(t, s, ours, &observed{theirs, func(frame string) {
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

// A halfDuplex link can be told that its peer sends nothing more.
type halfDuplex struct {
	transport.Link
	receiver transport.Receiver
}

func (h *halfDuplex) Bind(r transport.Receiver) {
	h.receiver = r
	h.Link.Bind(r)
}

// Guarantees: G-0020.7
func TestSubscriptionsEndWithAResult(t *testing.T) {
	for name, end := range map[string]func(*server.Server, *halfDuplex){
		"the server is closed": func(s *server.Server, _ *halfDuplex) { s.Close(context.Background()) },
		"the input has ended":  func(_ *server.Server, link *halfDuplex) { link.receiver.Ended() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := withTool()
			ours, theirs := inmem.Pipe(inmem.Options{})
			link := &halfDuplex{Link: theirs}
			w := dialOn(t, s, ours, link)
			ours.Grant(transport.Main, cap(w.frames))
			w.listen(`"a"`)
			w.listen(`2`)
			end(s, link)
			ends := w.next() + w.next()
			for _, id := range []string{`"a"`, `2`} {
				if !strings.Contains(ends, `"id":`+id+`,"result":{"_meta":{`) || !strings.Contains(ends, subscriptionID(id)) {
					t.Errorf("%s: got %s", name, ends)
				}
			}
			if !strings.Contains(ends, `"resultType":"complete"`) || !strings.Contains(ends, protocol.MetaServerInfo) {
				t.Errorf("%s: got %s", name, ends)
			}
		})
	}
}

// Guarantees: G-0020.7
func TestSubscriptionEndsInGoodOrderWhileThereIsSomethingToTell(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
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
			if !strings.Contains(last, `"result":{`) {
				t.Fatalf("got %s", last)
			}
		})
	}
}

// Guarantees: G-0021.3
func TestLegacyClientsAreToldOnceTheyAreInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withTool()
		w := dial(t, s)
		addNamed(s, "before")
		w.wantNothing()
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
		w.want(`"id":"init"`)
		addNamed(s, "between")
		addNamed(s, "and again")
		w.wantNothing()
		w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		w.want(announcement) // of what has changed meanwhile, once
		w.wantNothing()
		for range 2 {
			addNamed(s, "another")
			if frame := w.next(); !strings.Contains(frame, announcement) || strings.Contains(frame, "_meta") {
				t.Errorf("got %s", frame)
			}
			w.wantNothing()
		}
	})
}

func TestLegacyClientThatHasSeenNothingChangeIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := dial(t, withTool())
		w.initialize(protocol.Version20251125)
		w.wantNothing()
	})
}

// Nobody is told of what was not offered.
func TestLegacyClientsAreToldOfWhatTheyWereOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(server.Options{})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		addNamed(s, "a")
		w.wantNothing()
	})
}

// Guarantees: G-0029.4
func TestChangesAreToldAtMostOnceInTenMilliseconds(t *testing.T) {
	for name, begin := range map[string]func(*wire){
		"modern": func(w *wire) { w.listen(`1`) },
		"legacy": func(w *wire) { w.initialize(protocol.Version20251125) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := withTool()
			w := dial(t, s)
			begin(w)
			synctest.Wait()
			for range 100 { // in 100 ms
				addNamed(s, "another")
				pass(time.Millisecond)
			}
			pass(time.Second)
			if n := len(w.frames); n < 9 || n > 10 {
				t.Errorf("%s: %d messages", name, n)
			}
		})
	}
}
