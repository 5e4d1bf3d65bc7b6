package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A subscriptionModel is a server with two clients of each era, and what each of their streams should get.
type subscriptionModel struct {
	server  *server.Server
	clients []*subscriber
	slow    time.Duration // how long an acknowledgement takes
	tools   int

	mu sync.Mutex
	on map[string]int // how often OnSubscribe returned nil for a resource, less how often OnUnsubscribe was called
}

// A subscriber is one client. A legacy one has one stream, whose id is empty.
type subscriber struct {
	rawPeer
	legacy  bool
	sent    int
	streams map[string]*subscribed
	got     map[string][]string // what came on each stream, in order
	served  chan error
}

// A subscribed is what a stream wants, and what it should get. A list is named "tools", a resource by its URI.
type subscribed struct {
	wanted, pending map[string]bool
	begins          time.Time // when its acknowledgement is sent
	due             time.Time // when what is pending is sent; zero: nothing is
	want            []string
}

const acknowledgedLine = "acknowledged"

var modelURIs = []string{"x://a", "x://b", "x://refused"}

// Whatever clients of both eras subscribe to and leave, while resources and tools change, acknowledgements are slow and links
// break, each stream gets exactly the changes that it was granted, acknowledged first, each once in 10 ms and none after its
// end, and the program is told of the end of each subscription that it granted.
//
// Guarantees: G-0020.6, G-0029.4
func TestSubscriptionsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newSubscriptionModel()
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"subscribe":   m.subscribe,
				"unsubscribe": m.unsubscribe,
				"listen":      m.listen,
				"leave":       m.leave,
				"update":      m.update,
				"again":       m.update,
				"tool":        m.tool,
				"lose":        func(t *rapid.T) { m.lose(rapid.SampledFrom(m.clients).Draw(t, "client")) },
				"pass":        m.pass,
				"":            m.check,
			})
		})
	})
}

func newSubscriptionModel() *subscriptionModel {
	m := &subscriptionModel{on: make(map[string]int)}
	m.server = newServer(server.Options{
		OnSubscribe: func(_ context.Context, uri string) error {
			if uri == "x://refused" {
				return server.ErrNotFound
			}
			m.told(uri, 1)
			return nil
		},
		OnUnsubscribe: func(_ context.Context, uri string) { m.told(uri, -1) },
		Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.NotificationAcknowledged && m.slow > 0 {
					pass(m.slow)
				}
				return next(ctx, r)
			}
		}},
	})
	addNamed(m.server, "first")
	for n := range 4 {
		c := &subscriber{legacy: n < 2}
		m.clients = append(m.clients, c)
		c.dial(m.server)
	}
	return m
}

func (m *subscriptionModel) told(uri string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on[uri] += n
}

func (c *subscriber) dial(s *server.Server) {
	ours, theirs := inmem.Pipe(inmem.Options{})
	c.link, c.frames, c.served = ours, make(chan string, 100), make(chan error, 1)
	c.streams, c.got = make(map[string]*subscribed), make(map[string][]string)
	served := c.served
	go func() { served <- s.ServeLink(context.Background(), theirs) }()
	ours.Bind(&c.rawPeer)
	ours.Grant(transport.Main, cap(c.frames))
	if c.legacy {
		c.say(legacy(`"i"`, "initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}`))
		c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.streams[""] = &subscribed{wanted: map[string]bool{"tools": true}, pending: make(map[string]bool)}
		clear(c.got) // the answer
	}
}

func (c *subscriber) say(frame string) {
	if err := c.link.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
		panic(err)
	}
	c.hear()
}

// hear takes what the server has sent.
func (c *subscriber) hear() {
	synctest.Wait()
	for len(c.frames) > 0 {
		var f struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Error  *fault          `json:"error"`
			Params struct {
				URI           string                      `json:"uri"`
				Notifications protocol.SubscriptionFilter `json:"notifications"`
				Meta          map[string]json.RawMessage  `json:"_meta"`
			} `json:"params"`
		}
		if err := json.Unmarshal([]byte(<-c.frames), &f); err != nil {
			panic(err)
		}
		c.link.Grant(transport.Main, 1)
		line := f.Params.URI
		switch f.Method {
		case protocol.NotificationToolsListChanged:
			line = "tools"
		case protocol.NotificationAcknowledged:
			line = acknowledgedLine + fmt.Sprint(f.Params.Notifications.ToolsListChanged, f.Params.Notifications.ResourceSubscriptions)
		case "":
			line = fmt.Sprintf("answer %s refused: %t", f.ID, f.Error != nil)
		}
		stream := string(f.Params.Meta[protocol.MetaSubscriptionID])
		c.got[stream] = append(c.got[stream], line)
	}
}

// request sends a request, and what the stream wants then includes its answer.
func (c *subscriber) request(method, uri string, refused bool) {
	c.sent++
	c.streams[""].want = append(c.streams[""].want, fmt.Sprintf("answer %d refused: %t", c.sent, refused))
	c.say(legacy(fmt.Sprint(c.sent), method, fmt.Sprintf(`"uri":%q`, uri)))
}

// drawClient draws a client of an era.
func (m *subscriptionModel) drawClient(t *rapid.T, legacy bool) *subscriber {
	if n := rapid.IntRange(0, 1).Draw(t, "client"); !legacy {
		return m.clients[2+n]
	} else {
		return m.clients[n]
	}
}

func (m *subscriptionModel) subscribe(t *rapid.T) {
	c, uri := m.drawClient(t, true), rapid.SampledFrom(modelURIs).Draw(t, "uri")
	refused := uri == "x://refused"
	if c.request(protocol.MethodSubscribe, uri, refused); !refused {
		c.streams[""].wanted[uri] = true
	}
}

func (m *subscriptionModel) unsubscribe(t *rapid.T) {
	c, uri := m.drawClient(t, true), rapid.SampledFrom(modelURIs).Draw(t, "uri")
	delete(c.streams[""].wanted, uri)
	delete(c.streams[""].pending, uri)
	c.request(protocol.MethodUnsubscribe, uri, false)
}

// listen opens a stream, whose acknowledgement may take a while.
func (m *subscriptionModel) listen(t *rapid.T) {
	c := m.drawClient(t, false)
	uris := rapid.SliceOfDistinct(rapid.SampledFrom(modelURIs), rapid.ID[string]).Draw(t, "uris")
	tools := rapid.Bool().Draw(t, "tools")
	m.slow = rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Millisecond}).Draw(t, "slow")
	c.sent++
	id := fmt.Sprint(c.sent)
	granted := slices.DeleteFunc(slices.Clone(uris), func(uri string) bool { return uri == "x://refused" })
	one := &subscribed{wanted: make(map[string]bool), pending: make(map[string]bool), begins: time.Now().Add(m.slow)}
	one.want = []string{acknowledgedLine + fmt.Sprint(tools, granted)}
	for _, uri := range granted {
		one.wanted[uri] = true
	}
	if tools {
		one.wanted["tools"] = true
	}
	c.streams[id] = one
	filter, _ := json.Marshal(map[string]any{"toolsListChanged": tools, "resourceSubscriptions": uris})
	c.say(modern(id, protocol.MethodListen, `"notifications":`+string(filter)))
}

// leave ends a stream that has begun. Nothing comes after that.
func (m *subscriptionModel) leave(t *rapid.T) {
	c := m.drawClient(t, false)
	open := slices.Sorted(maps.Keys(c.streams))
	open = slices.DeleteFunc(open, func(id string) bool { return c.streams[id].begins.After(time.Now()) })
	if len(open) == 0 {
		t.Skip("no stream is open")
	}
	id := rapid.SampledFrom(open).Draw(t, "stream")
	c.check(t)
	delete(c.streams, id)
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	if n := len(c.got[id]); n > 0 {
		t.Fatalf("%q came on a stream that has ended, want nothing", c.got[id])
	}
}

func (m *subscriptionModel) update(t *rapid.T) {
	uri := rapid.SampledFrom(modelURIs).Draw(t, "uri")
	m.server.ResourceUpdated(uri)
	m.changed(uri)
}

func (m *subscriptionModel) tool(*rapid.T) {
	m.tools++
	addNamed(m.server, fmt.Sprint("tool", m.tools))
	m.changed("tools")
}

// changed is what a change does: it comes 10 ms after the first that waits.
func (m *subscriptionModel) changed(what string) {
	for _, c := range m.clients {
		for _, one := range c.streams {
			if one.wanted[what] {
				one.pending[what] = true
				if one.due.IsZero() {
					one.due = time.Now().Add(10 * time.Millisecond)
				}
			}
		}
	}
}

func (m *subscriptionModel) pass(t *rapid.T) {
	pass(rapid.SampledFrom([]time.Duration{4 * time.Millisecond, 10 * time.Millisecond, time.Second}).Draw(t, "time"))
}

// lose breaks the link of a client, which dials again.
func (m *subscriptionModel) lose(c *subscriber) {
	c.link.Close(0)
	<-c.served
	c.dial(m.server)
}

// check compares what has come, and what the program was told, with the model.
func (m *subscriptionModel) check(t *rapid.T) {
	want := make(map[string]int)
	for _, c := range m.clients {
		c.check(t)
		for _, one := range c.streams {
			for what := range one.wanted {
				want[what]++
			}
		}
	}
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uri := range modelURIs {
		if m.on[uri] != want[uri] {
			t.Fatalf("the program knows %d subscriptions of %s, want %d", m.on[uri], uri, want[uri])
		}
	}
}

func (c *subscriber) check(t *rapid.T) {
	c.hear()
	now := time.Now()
	for id, one := range c.streams {
		if one.begins.After(now) {
			if len(c.got[id]) > 0 {
				t.Fatalf("stream %s got %q before its acknowledgement", id, c.got[id])
			}
			continue
		}
		if !one.begins.IsZero() && one.due.Before(one.begins.Add(10*time.Millisecond)) && !one.due.IsZero() {
			one.due = one.begins.Add(10 * time.Millisecond)
		}
		if !one.due.IsZero() && !one.due.After(now) {
			if one.pending["tools"] {
				one.want = append(one.want, "tools")
				delete(one.pending, "tools")
			}
			one.want = append(one.want, slices.Sorted(maps.Keys(one.pending))...)
			clear(one.pending)
			one.due = time.Time{}
		}
		if !slices.Equal(c.got[id], one.want) {
			t.Fatalf("stream %q (legacy: %t) got %q, want %q", id, c.legacy, c.got[id], one.want)
		}
		one.want, c.got[id] = nil, nil
	}
	for id, got := range c.got {
		if len(got) > 0 {
			t.Fatalf("stream %s got %q, want nothing", id, got)
		}
	}
}

// end closes the server. Each stream ends, and the program is told.
func (m *subscriptionModel) end(t *rapid.T) {
	for _, c := range m.clients {
		c.link.Close(0)
		<-c.served
		clear(c.streams)
		clear(c.got)
	}
	if err := m.server.Close(context.Background()); err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uri, on := range m.on {
		if on != 0 {
			t.Errorf("the program knows %d subscriptions of %s after the end, want none", on, uri)
		}
	}
}
