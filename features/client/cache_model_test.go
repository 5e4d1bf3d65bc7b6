package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// A cacheModel is a session with its server, and what its cache should hold.
type cacheModel struct {
	*cacheModelServer
	session  *client.Session
	epochs   []uint64      // of each link of the server
	kept     []*keptResult // the most recently used comes first
	underway []*askedResult
	granted  int
}

// A keptResult is in the cache.
type keptResult struct {
	key, text              string
	link                   int
	received, fresh, until time.Time
	outdated               bool // by a report
}

// An askedResult is a request that the server has.
type askedResult struct {
	frame
	key      string
	options  client.CallOptions
	outdated bool // a report came since
	cancel   func()
	done     chan cacheAnswer
}

// Each key is a method and what it is about. The tools have two pages, of which the second has an empty cursor.
var cacheKeys = []string{"tools/list", "tools/list ", "prompts/list", "resources/read x://a", "resources/read x://a/b"}

const keptAtMost = 3 // results of resultBytes fit into cacheBytes

// Two sessions of one Client keep exactly what the model keeps, whatever is asked, answered late, twice or with an error,
// cancelled, reported, lost and cleared. Nobody gets what was kept for another.
//
// Guarantees: G-0035.1, G-0035.2, G-0035.3, G-0035.4, G-0035.5
func TestCacheAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c := client.New(clientInfo, client.Options{
				ProtocolVersion: protocol.Latest, CacheBytes: cacheBytes, OnEvent: func(context.Context, *client.Session, client.Event) {},
			})
			all := []*cacheModel{newCacheModel(t, c, "ada"), newCacheModel(t, c, "grace")}
			wait := func(d time.Duration) {
				for _, m := range all {
					m.passes.Add(1)
				}
				pass(d)
			}
			of := func(act func(*cacheModel, *rapid.T)) func(*rapid.T) {
				return func(t *rapid.T) {
					m := all[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "user")]
					act(m, t)
					m.observe(t)
					m.ask(t)
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"ask":    of((*cacheModel).ask),
				"more":   of((*cacheModel).ask),
				"range":  of((*cacheModel).walk),
				"answer": of((*cacheModel).answerOne),
				"cancel": of((*cacheModel).cancelOne),
				"report": of((*cacheModel).report),
				"cross":  of((*cacheModel).cross),
				"relist": of((*cacheModel).endListen),
				"clear":  of((*cacheModel).clear),
				"lose":   of((*cacheModel).lose),
				"back":   of(func(m *cacheModel, t *rapid.T) { m.away.Store(false); wait(40 * time.Second) }),
				"pass": func(t *rapid.T) {
					defer func() {
						for _, m := range all {
							m.observe(t)
							for _, key := range cacheKeys {
								m.request(t, key, client.CallOptions{MaxStale: 90*time.Second + 1})
							}
						}
					}()
					wait(rapid.SampledFrom([]time.Duration{time.Second, time.Second, 30 * time.Second, time.Minute, 25 * time.Hour}).Draw(t, "time"))
				},
				"": func(t *rapid.T) {
					for _, m := range all {
						m.observe(t)
					}
				},
			})
			for _, m := range all {
				m.end(t)
			}
		})
	})
}

func newCacheModel(t *rapid.T, c *client.Client, user string) *cacheModel {
	m := &cacheModel{cacheModelServer: newCacheModelServer(user)}
	s, err := c.Connect(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()); m.close() })
	m.session = s
	return m
}

// look returns what is kept, for a request that looks for it.
func (m *cacheModel) look(key string, usable func(*keptResult) bool) *keptResult {
	i := slices.IndexFunc(m.kept, func(e *keptResult) bool { return e.key == key })
	switch {
	case i < 0:
	case !time.Now().Before(m.kept[i].until):
		m.kept = slices.Delete(m.kept, i, i+1)
	case usable(m.kept[i]):
		return m.kept[i]
	}
	return nil
}

// use is look for a single request: it makes the result the most recently used.
func (m *cacheModel) use(key string, usable func(*keptResult) bool) *keptResult {
	e := m.look(key, usable)
	if e != nil {
		m.drop(func(other *keptResult) bool { return other == e })
		m.kept = slices.Insert(m.kept, 0, e)
	}
	return e
}

func (m *cacheModel) drop(which func(*keptResult) bool) { m.kept = slices.DeleteFunc(m.kept, which) }

func (m *cacheModel) isFresh(e *keptResult) bool {
	return !e.outdated && e.link == m.link && time.Now().Before(e.fresh)
}

func notOlderThan(age time.Duration) func(*keptResult) bool {
	return func(e *keptResult) bool { return age > 0 && time.Since(e.received) <= age }
}

// keep is what the cache does with an answer.
func (m *cacheModel) keep(key, text string, said cacheHints, maxStale time.Duration, outdated bool) {
	m.drop(func(e *keptResult) bool { return e.key == key })
	now := time.Now()
	e := &keptResult{key: key, text: text, link: m.link, received: now, fresh: now.Add(said.lifetime)}
	e.until = now.Add(max(said.lifetime, min(maxStale, 24*time.Hour)))
	if !outdated && e.until.After(now) && said.size <= resultBytes {
		m.kept = slices.Insert(m.kept, 0, e)
		m.kept = m.kept[:min(len(m.kept), keptAtMost)]
	}
}

// outdate is what a report does to the results of a method, or to those that it is about.
func (m *cacheModel) outdate(method string, about func(uri string) bool) {
	for _, e := range m.kept {
		at, uri, _ := strings.Cut(e.key, " ")
		e.outdated = e.outdated || at == method && (about == nil || about(uri))
	}
	for _, a := range m.underway {
		a.outdated = a.outdated || a.Method == method
	}
}

// ask makes a request, and another for what the first has left in the cache.
func (m *cacheModel) ask(t *rapid.T) {
	key := rapid.SampledFrom(cacheKeys).Draw(t, "key")
	m.request(t, key, m.drawOptions(t))
	m.request(t, key, client.CallOptions{})
}

// cross lets a report, or what ends the results of a user, cross with requests that are under way.
func (m *cacheModel) cross(t *rapid.T) {
	for _, key := range cacheKeys {
		m.request(t, key, client.CallOptions{Fresh: true})
	}
	if rapid.IntRange(0, 3).Draw(t, "cleared") == 0 {
		m.clear(t)
	} else if m.ready {
		m.report(t)
	}
	for len(m.underway) > 0 {
		m.answer(t, 0)
	}
	for _, key := range cacheKeys {
		m.request(t, key, client.CallOptions{MaxStale: time.Minute})
	}
}

func (m *cacheModel) drawOptions(t *rapid.T) (o client.CallOptions) {
	o.Fresh = rapid.IntRange(0, 4).Draw(t, "fresh") == 0
	o.MaxStale = rapid.SampledFrom([]time.Duration{0, 0, 90*time.Second + 1, 48 * time.Hour}).Draw(t, "maxStale")
	if rapid.IntRange(0, 4).Draw(t, "bound") == 0 {
		o.Epoch = rapid.SampledFrom(m.epochs).Draw(t, "epoch")
	}
	return o
}

// request checks whether a result comes from the cache.
func (m *cacheModel) request(t *rapid.T, key string, o client.CallOptions) {
	o.Timeout = -1
	var want *keptResult
	if !o.Fresh {
		if want = m.use(key, m.isFresh); want != nil && o.Epoch != 0 && m.epochs[want.link-1] != o.Epoch {
			want = nil
		}
	}
	if want == nil && !m.ready && o.Epoch == 0 {
		want = m.use(key, notOlderThan(o.MaxStale))
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := &askedResult{key: key, options: o, cancel: cancel, done: make(chan cacheAnswer, 1)}
	held := len(m.held)
	go func() { a.done <- askKey(ctx, m.session.With(o), key) }()
	synctest.Wait()
	switch {
	case want != nil:
		m.wantAnswer(t, a, want, nil)
	case o.Epoch != 0 && (!m.ready || m.epochs[m.link-1] != o.Epoch):
		m.wantAnswer(t, a, nil, client.ErrStale)
	case !m.ready:
		m.wantAnswer(t, a, nil, client.ErrUnavailable)
	case len(m.held) != held+1:
		t.Fatalf("%s: %q did not reach the server, want it to: %v", m.user, key, <-a.done)
	default:
		a.frame, m.underway = m.held[held], append(m.underway, a)
		if rapid.Bool().Draw(t, "answered at once") {
			m.answer(t, len(m.underway)-1)
		}
	}
}

// wantAnswer checks how a request has ended.
func (m *cacheModel) wantAnswer(t *rapid.T, a *askedResult, want *keptResult, failure error) {
	synctest.Wait()
	if want == nil {
		want = new(keptResult)
	}
	if len(a.done) == 0 {
		t.Fatalf("%s: %q waits, want %q, %v", m.user, a.key, want.text, failure)
	}
	got := <-a.done
	if got.text != want.text || !got.received.Equal(want.received) || (got.err == nil) != (failure == nil) || failure != nil && !errors.Is(got.err, failure) {
		t.Fatalf("%s: %q got %q of %v, %v; want %q of %v, %v", m.user, a.key, got.text, got.received, got.err, want.text, want.received, failure)
	}
}

// observe notes what the client has done as time passed, and that no request has ended by itself.
func (m *cacheModel) observe(t *rapid.T) {
	synctest.Wait()
	if m.link > len(m.epochs) {
		m.epochs = append(m.epochs, m.session.Pin().Calls().Epoch)
	}
	for ; m.granted < m.grants; m.granted++ {
		for _, method := range []string{protocol.MethodListTools, protocol.MethodListPrompts, protocol.MethodReadResource} {
			m.outdate(method, nil)
		}
	}
	for _, a := range m.underway {
		if len(a.done) > 0 {
			t.Fatalf("%s: %q has ended, want it to wait", m.user, a.key)
		}
	}
}

// end closes the session, which then has no results.
func (m *cacheModel) end(t *rapid.T) {
	for len(m.underway) > 0 {
		m.cancel(t, 0)
	}
	if err := m.session.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, key := range cacheKeys {
		if got := askKey(t.Context(), m.session.With(client.CallOptions{MaxStale: time.Hour}), key); !errors.Is(got.err, client.ErrClosed) {
			t.Fatalf("%s: after Close, %q got %q, %v", m.user, key, got.text, got.err)
		}
	}
}
