package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A cacheModelServer is the server of one session. It answers when the model says so.
type cacheModelServer struct {
	*fakeServer
	user   string
	passes atomic.Int64 // how often time has passed; it orders what the model does before what the server does then
	away   atomic.Bool  // it accepts no connection
	link   int          // how many clients were welcomed
	ready  bool         // the last of them is still there
	listen frame        // the present subscription
	grants int          // how often the server granted one that is not the first of its link
	hints  *cacheHints  // of answers that are not held back
	held   []frame      // requests of the present link that were held back
	count  int          // of results
}

func newCacheModelServer(user string) *cacheModelServer {
	m := &cacheModelServer{user: user}
	m.fakeServer = &fakeServer{answer: m.serve}
	return m
}

// Open implements transport.Transport.
func (m *cacheModelServer) Open(ctx context.Context) (transport.Link, error) {
	if m.away.Load() {
		return nil, errors.New("nobody is there")
	}
	return m.fakeServer.Open(ctx)
}

func (m *cacheModelServer) serve(f frame) []string {
	m.passes.Load()
	switch f.Method {
	case protocol.MethodDiscover:
		m.link, m.ready, m.listen, m.held = m.link+1, true, frame{}, nil
		return []string{f.result(discoveredAll)}
	case protocol.MethodListen:
		if m.listen.ID != nil {
			m.grants++
		}
		m.listen = f
		return []string{f.grants()}
	case protocol.NotificationCancelled:
	default:
		if m.hints != nil {
			return []string{m.result(f, *m.hints)}
		}
		m.held = append(m.held, f)
	}
	return nil
}

const resultBytes, cacheBytes = 4000, 16 << 10

// cacheHints are what a server says about an answer, and how long it is.
type cacheHints struct {
	members  string
	lifetime time.Duration
	size     int
}

func drawHints(t *rapid.T) cacheHints {
	minute := cacheHints{`"ttlMs":60000`, time.Minute, resultBytes}
	return rapid.SampledFrom([]cacheHints{
		minute, minute, minute,
		{`"ttlMs":90000`, 90 * time.Second, resultBytes},
		{`"ttlMs":9223372036854775807`, 24 * time.Hour, resultBytes},
		{`"ttlMs":0`, 0, resultBytes},
		{`"ttlMs":-1`, 0, resultBytes},
		{`"cacheScope":"public"`, 0, resultBytes},
		{`"ttlMs":60000`, time.Minute, 2 * cacheBytes},
	}).Draw(t, "hints")
}

// result returns the next answer to a request.
func (m *cacheModelServer) result(f frame, said cacheHints) string {
	m.count++
	what := map[string]string{
		protocol.MethodListTools:    `"tools":[{"name":"%s","description":"%s","inputSchema":{"type":"object"}}]`,
		protocol.MethodListPrompts:  `"prompts":[{"name":"%s","description":"%s"}]`,
		protocol.MethodReadResource: `"contents":[{"uri":"x://a","text":"%s"},{"uri":"x://b","text":"%s"}]`,
	}[f.Method]
	if f.Method == protocol.MethodListTools && cursorOf(f) == "none" {
		what = `"nextCursor":"",` + what
	}
	return f.result(fmt.Sprintf(`{"resultType":"complete",%s,`+what+`}`, said.members, m.text(0), strings.Repeat("x", said.size)))
}

// text returns the text of the last result, or of one that comes later.
func (m *cacheModelServer) text(later int) string { return fmt.Sprint(m.user, m.count+later) }

type cacheAnswer struct {
	text     string
	received time.Time
	err      error
}

// askKey makes the request of a key. It changes the result, which is its own.
func askKey(ctx context.Context, s *client.Session, key string) (a cacheAnswer) {
	method, about, has := strings.Cut(key, " ")
	var text *string
	switch method {
	case protocol.MethodListTools:
		params := new(protocol.ListToolsParams)
		if has {
			params.Cursor = &about
		}
		var r *protocol.ListToolsResult
		if r, a.err = s.ListTools(ctx, params); a.err == nil {
			text, a.received = &r.Tools[0].Name, r.Received
		}
	case protocol.MethodListPrompts:
		var r *protocol.ListPromptsResult
		if r, a.err = s.ListPrompts(ctx, nil); a.err == nil {
			text, a.received = &r.Prompts[0].Name, r.Received
		}
	default:
		var r *protocol.ReadResourceResult
		if r, a.err = s.ReadResource(ctx, &protocol.ReadResourceParams{URI: about}); a.err == nil {
			text, a.received = r.Contents[0].Text, r.Received
		}
	}
	if a.err == nil {
		a.text, *text = *text, "changed by the caller"
	}
	return a
}

// say sends a frame, which has arrived when say returns.
func (m *cacheModel) say(t *rapid.T, frame string) {
	if err := m.links[len(m.links)-1].Send(outbound(frame)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// draw draws one of the requests that are under way.
func (m *cacheModel) draw(t *rapid.T) int {
	if len(m.underway) == 0 {
		t.Skip("nothing is under way")
	}
	return rapid.IntRange(0, len(m.underway)-1).Draw(t, "which")
}

func (m *cacheModel) take(i int) *askedResult {
	a := m.underway[i]
	m.underway = slices.Delete(m.underway, i, i+1)
	return a
}

func (m *cacheModel) answerOne(t *rapid.T) { m.answer(t, m.draw(t)) }

// answer answers a request, with a result that comes twice, or with an error.
func (m *cacheModel) answer(t *rapid.T, i int) {
	a := m.take(i)
	if rapid.IntRange(0, 5).Draw(t, "refused") == 0 {
		m.say(t, a.fault(-32602, `null`))
		m.wantAnswer(t, a, nil, client.ErrInvalid)
		if a.key == "tools/list " { // the cursor is no longer valid
			m.drop(func(e *keptResult) bool { return strings.HasPrefix(e.key, protocol.MethodListTools) })
		}
		return
	}
	said := drawHints(t)
	m.say(t, m.result(a.frame, said))
	m.wantAnswer(t, a, &keptResult{text: m.text(0)}, nil)
	m.keep(a.key, m.text(0), said, a.options.MaxStale, a.outdated)
	m.say(t, m.result(a.frame, said))
}

// cancelOne cancels a request. Its answer may still come.
func (m *cacheModel) cancelOne(t *rapid.T) { m.cancel(t, m.draw(t)) }

func (m *cacheModel) cancel(t *rapid.T, i int) {
	a := m.take(i)
	a.cancel()
	m.wantAnswer(t, a, nil, context.Canceled)
	if rapid.Bool().Draw(t, "answered late") {
		m.say(t, m.result(a.frame, drawHints(t)))
	}
}

func (m *cacheModel) report(t *rapid.T) {
	if !m.ready {
		t.Skip("nobody is there")
	}
	switch reported := rapid.SampledFrom([]string{"tools", "prompts", "resources", "x://a", "x://a/b", "x://a/b/c", "x://ab"}).Draw(t, "report"); reported {
	case "tools", "prompts", "resources":
		m.say(t, `{"jsonrpc":"2.0","method":"notifications/`+reported+`/list_changed"}`)
		m.outdate(map[string]string{"tools": protocol.MethodListTools, "prompts": protocol.MethodListPrompts, "resources": protocol.MethodReadResource}[reported], nil)
	default:
		m.say(t, updated(reported))
		m.outdate(protocol.MethodReadResource, func(uri string) bool { return uri == reported || strings.HasPrefix(reported, uri+"/") })
	}
}

// endListen ends the subscription. The client asks for it again, and what happened in between was not reported.
func (m *cacheModel) endListen(t *rapid.T) {
	if !m.ready {
		t.Skip("nobody is there")
	}
	m.say(t, m.listen.result(`{"resultType":"complete"}`))
}

func (m *cacheModel) clear(*rapid.T) {
	m.session.ClearCache()
	m.kept = nil
	for _, a := range m.underway {
		a.outdated = true
	}
}

// lose cuts the link, for a second or until the server is back. What is under way gets an old result, if it accepts one.
func (m *cacheModel) lose(t *rapid.T) {
	m.away.Store(rapid.IntRange(0, 2).Draw(t, "away") == 0)
	if !m.ready {
		return
	}
	for len(m.underway) > 1 { // the order in which several would look for old results is not known
		m.cancel(t, 0)
	}
	m.ready = false
	m.cut()
	for _, a := range m.underway {
		if e := m.use(a.key, func(e *keptResult) bool { return a.options.Epoch == 0 && notOlderThan(a.options.MaxStale)(e) }); e != nil {
			m.wantAnswer(t, a, e, nil)
		} else {
			m.wantAnswer(t, a, nil, client.ErrLost)
		}
	}
	m.underway = nil
}

// walk ranges over all tools: over those of the cache, or over those of the server.
func (m *cacheModel) walk(t *rapid.T) {
	o, said := m.drawOptions(t), drawHints(t)
	o.Epoch, o.Timeout = 0, -1
	whole := func(usable func(*keptResult) bool) (pages []string) {
		for _, key := range cacheKeys[:2] {
			e := m.look(key, usable)
			if e == nil {
				return nil
			}
			pages = append(pages, e.text)
		}
		return pages
	}
	want, stale := whole(m.isFresh), []string(nil)
	if o.MaxStale > 0 {
		stale = whole(notOlderThan(o.MaxStale))
	}
	fromServer := m.ready && (want == nil || o.Fresh)
	switch {
	case fromServer:
		want = []string{m.text(1), m.text(2)}
	case want == nil || o.Fresh:
		want = stale
	}
	var got []string
	var err error
	m.hints = &said
	for tool, failed := range m.session.With(o).Tools(t.Context()) {
		if err = failed; err == nil {
			got = append(got, tool.Name)
		}
	}
	m.hints = nil
	if !slices.Equal(got, want) || (err == nil) != (want != nil) || err != nil && !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("%s: the range yields %q, %v, want %q", m.user, got, err, want)
	}
	if fromServer {
		m.keep(cacheKeys[0], want[0], said, o.MaxStale, false)
		m.keep(cacheKeys[1], want[1], said, o.MaxStale, false)
	}
}
