//go:build unix

package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A setModel is a Set, and what it should have done.
type setModel struct {
	set        *Set
	supervisor *supervisor.Supervisor
	shared     bool // the Set uses the supervisor

	running map[string]*started // those that the Set keeps, by name
	order   []string            // the names of the file
	file    map[string]setEntry // the servers of the file that are not disabled
	held    map[string]setEntry // those that are kept ended
	all     []*started
	latest  map[string]*started          // those that the present step has started
	refused map[string]bool              // names whose Login fails
	taken   map[string]*supervisor.Child // names that the Set cannot have
	calls   []*slowCall
	called  int
}

// A slowCall ends when its server answers, or with its session.
type slowCall struct {
	of      *started
	ends    time.Time
	fails   bool
	outcome chan error
}

// A Set does what its model says when random files are applied and single servers are stopped and started, while sessions end by
// themselves, calls are under way, names are taken and logins fail. Servers with a command are
// there, in memory; servers with a url are away.
//
// Guarantees: G-0041.1, G-0041.2, G-0041.3, G-0041.5, G-0041.6, G-0041.7, G-0041.8
func TestSetAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defer time.AfterFunc(time.Minute, func() { panic("a case hangs for a minute") }).Stop()
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &setModel{running: map[string]*started{}, held: map[string]setEntry{}, refused: map[string]bool{}, taken: map[string]*supervisor.Child{}}
			o := Options{Each: m.each, Login: m.login}
			o.Client.Conn.Log = slog.New(slog.DiscardHandler)
			m.supervisor = supervisor.New(supervisor.Options{})
			defer m.supervisor.Stop(context.Background())
			if m.shared = rapid.Bool().Draw(t, "shared supervisor"); m.shared {
				o.Client.Supervisor = m.supervisor
			}
			m.set = New(protocol.Implementation{Name: "test", Version: "1"}, o)
			defer m.abandon() // when a step fails
			t.Repeat(map[string]func(*rapid.T){
				"apply": m.apply, "act": m.act, "call": m.call, "end": m.end, "log in": m.logIn, "take": m.take, "await": m.await,
				"refuse": func(t *rapid.T) { name := setName(t); m.refused[name] = !m.refused[name] },
				"pass": func(t *rapid.T) {
					<-time.NewTimer(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second).C
				},
				"": m.check,
			})
			m.close(t)
		})
	})
}

func setName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
}

func (m *setModel) apply(t *rapid.T) {
	entries, file := drawFile(t)
	want, ending, starting := m.plan(entries)
	m.latest = map[string]*started{}
	began := time.Now()
	problems, took := m.stopping(ending)
	got, err := m.set.Apply(context.Background(), file)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || time.Since(began) != took {
		t.Fatalf("Apply took %v, want %v; changes (-want +got):\n%s%v", time.Since(began), took, diff, err)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		wrong := slices.Contains(append(problems, want.Failed...), name)
		if named := strings.Contains(fmt.Sprint(err), `"`+name+`"`) || strings.Contains(fmt.Sprint(err), "mcpServers."+name+"."); named != wrong {
			t.Fatalf("the error names %s: %t, want %t: %v", name, named, wrong, err)
		}
	}
	maps.DeleteFunc(m.running, func(name string, _ *started) bool { return ending[name] != nil })
	for _, e := range starting {
		m.started(t, e)
	}
	if len(m.latest) != len(starting) {
		t.Fatalf("%d servers were started, want %d", len(m.latest), len(starting))
	}
}

// started checks that this step has started a server of the file, as the file says, and notes it.
func (m *setModel) started(t *rapid.T, e setEntry) {
	s := m.latest[e.name]
	if s == nil || s.entry.version != e.version || (s.login != nil) != (e.logsIn() && !m.refused[e.name]) {
		t.Fatalf("%+v was started as %+v", e, s)
	}
	s.entry = e
	delete(m.held, e.name)
	if !m.isUnfit(e) {
		m.running[e.name] = s
	}
}

// isUnfit reports whether a server cannot be started.
func (m *setModel) isUnfit(e setEntry) bool {
	return m.taken[e.name] != nil || m.refused[e.name] && e.logsIn()
}

// act stops, starts or restarts one server, which may not be there.
func (m *setModel) act(t *rapid.T) {
	name, ctx := setName(t), context.Background()
	what := rapid.SampledFrom([]string{"stop", "start", "restart", "stop if it is to be", "stop if it is not to be"}).Draw(t, "what")
	e, found := m.file[name]
	known, s := found && !e.mistaken, m.running[name]
	var ends, starts, holds, asked bool
	still := func() bool { asked = true; return what == "stop if it is to be" }
	switch runs := s != nil && !s.over; {
	case what == "stop":
		ends, holds = true, known
	case what == "start":
		ends, starts = !runs, known && !runs
	case what == "restart":
		ends, starts = true, known
	default:
		ends = what == "stop if it is to be"
		holds = known && s != nil && ends
	}
	ending := map[string]*started{}
	if ends && known && s != nil {
		ending[name] = s
	}
	m.latest = map[string]*started{}
	began := time.Now()
	stuck, took := m.stopping(ending)
	var err error
	switch what {
	case "stop":
		err = m.set.Stop(ctx, name)
	case "start":
		err = m.set.Start(ctx, name)
	case "restart":
		err = m.set.Restart(ctx, name)
	default:
		if err = m.set.StopIf(ctx, name, still); asked != (known && s != nil) {
			t.Fatalf("StopIf has asked whether %s is to be stopped: %t", name, asked)
		}
	}
	if wrong := !known || len(stuck) > 0 || starts && m.isUnfit(e); (err != nil) != wrong || time.Since(began) != took {
		t.Fatalf("it took %v, want %v, and returned %v, want an error: %t", time.Since(began), took, err, wrong)
	}
	if len(ending) > 0 {
		delete(m.running, name)
	}
	if holds {
		m.held[name] = e
	}
	if starts {
		m.started(t, e)
	}
	if starts != (len(m.latest) == 1) {
		t.Fatalf("%d servers were started, want one: %t", len(m.latest), starts)
	}
}

// plan returns what Apply has to do for a file.
func (m *setModel) plan(entries []setEntry) (want Changes, ending map[string]*started, starting []setEntry) {
	m.order, m.file, ending = nil, map[string]setEntry{}, maps.Clone(m.running)
	for _, e := range slices.DeleteFunc(entries, func(e setEntry) bool { return e.disabled }) {
		m.order, m.file[e.name] = append(m.order, e.name), e
		s := m.running[e.name]
		delete(ending, e.name)
		switch {
		case e.mistaken:
			want.Failed = append(want.Failed, e.name)
		case s == nil && m.held[e.name] == e: // it was stopped, and is as it was then
		case s == nil || s.over || s.entry != e:
			starting = append(starting, e)
		}
	}
	maps.DeleteFunc(m.held, func(name string, _ setEntry) bool { return !slices.Contains(m.order, name) })
	want.Stopped = slices.Sorted(maps.Keys(ending))
	for _, e := range starting {
		s := m.running[e.name]
		if s != nil {
			ending[e.name] = s
		}
		switch {
		case m.isUnfit(e):
			want.Failed = append(want.Failed, e.name)
		case s != nil && !s.over:
			want.Restarted = append(want.Restarted, e.name)
		default:
			want.Started = append(want.Started, e.name)
		}
	}
	return want, ending, starting
}

// stopping notes that servers are stopped now. It returns those whose calls do not end within
// the 5 s that Close gives them, and how long that takes.
func (m *setModel) stopping(ending map[string]*started) (stuck []string, took time.Duration) {
	const grace = 5 * time.Second
	for name, s := range ending {
		for _, c := range m.calls {
			if c.of != s {
				continue
			}
			if time.Until(c.ends) > grace {
				c.ends, c.fails, stuck = time.Now().Add(grace), true, append(stuck, name)
			}
			took = max(took, time.Until(c.ends))
		}
		s.over = true
	}
	return stuck, took
}

// pick draws a running server, and returns its session.
func (m *setModel) pick(t *rapid.T, fits func(*started) bool) (*started, *client.Session) {
	var fitting []string
	for name, s := range m.running {
		if !s.over && fits(s) {
			fitting = append(fitting, name)
		}
	}
	if len(fitting) == 0 {
		t.Skip("no such server runs")
	}
	name := rapid.SampledFrom(slices.Sorted(slices.Values(fitting))).Draw(t, "server")
	session, found := m.set.Session(name)
	if !found {
		t.Fatalf("there is no session %s", name)
	}
	return m.running[name], session
}

func (m *setModel) call(t *rapid.T) {
	s, session := m.pick(t, func(s *started) bool { return s.server != nil })
	m.called++ // no two calls end at the same time, nor when the time for another one is over
	lasts := time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds"))*time.Second + 1<<(m.called%29)
	c := &slowCall{of: s, ends: time.Now().Add(lasts), outcome: make(chan error, 1)}
	m.calls = append(m.calls, c)
	go func() {
		answer, err := session.CallTool(context.Background(), &protocol.CallToolParams{Name: "slow", Arguments: fmt.Appendf(nil, `{"Lasts":%d}`, lasts)})
		if err == nil && answer.Content.Text() != fmt.Sprint(s.number) {
			err = fmt.Errorf("answered by server %s, not %d", answer.Content.Text(), s.number)
		}
		c.outcome <- err
	}()
	synctest.Wait()
}

// end makes a session end by itself.
func (m *setModel) end(t *rapid.T) {
	s, session := m.pick(t, func(*started) bool { return true })
	session.Stop()
	_ = session.Wait()
	s.over = true
	for _, c := range m.calls {
		if c.of == s {
			c.ends, c.fails = time.Now(), true
		}
	}
}

// logIn wakes a session whose server is away.
func (m *setModel) logIn(t *rapid.T) {
	s, session := m.pick(t, func(s *started) bool { return s.login != nil })
	before := s.tries.Load()
	s.login.wake()
	synctest.Wait()
	if s.tries.Load() == before {
		t.Fatalf("the session %s was not woken by its login", session.Name())
	}
}

// take takes a name in the supervisor of the Set, or frees it.
func (m *setModel) take(t *rapid.T) {
	name := setName(t)
	if child := m.taken[name]; child != nil {
		if err := child.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		delete(m.taken, name)
		return
	}
	if s := m.running[name]; !m.shared || s != nil && !s.over {
		t.Skip("nobody else can have the name")
	}
	var err error
	if m.taken[name], err = m.supervisor.Start(context.Background(), supervisor.ChildSpec{ID: name, Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}); err != nil {
		t.Fatal(err)
	}
}

// await waits for all servers, as long as some are away.
func (m *setModel) await(t *rapid.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began, want := time.Now(), time.Duration(0)
	err := m.set.AwaitReady(ctx)
	for name, s := range m.running {
		away := !s.over && s.server == nil && slices.Contains(m.order, name)
		if named := strings.Contains(fmt.Sprint(err), fmt.Sprintf("server %q: ", name)); named != away {
			t.Fatalf("AwaitReady names %s: %t, want %t: %v", name, named, away, err)
		}
		if away {
			want = time.Second
		}
	}
	if took := time.Since(began); took != want {
		t.Fatalf("AwaitReady took %v, want %v", took, want)
	}
}

// check compares the sessions, the logins and the calls with those of the model.
func (m *setModel) check(t *rapid.T) {
	synctest.Wait()
	var got []string
	for session := range m.set.Sessions() {
		got = append(got, session.Name())
	}
	want := slices.DeleteFunc(slices.Clone(m.order), func(name string) bool { s := m.running[name]; return s == nil || s.over })
	if !slices.Equal(got, want) {
		t.Fatalf("the sessions are %v, want %v", got, want)
	}
	if acting := m.set.acting.names(); len(acting) > 0 { // they would take room for ever
		t.Fatalf("somebody still has the turns of %v", acting)
	}
	for _, s := range m.all {
		ends := 1
		if m.running[s.entry.name] == s {
			ends = 0
		}
		if l := s.login; l != nil && (l.early || l.ends != ends || s.without.Load()) {
			t.Fatalf("the login of %s: closed before the session: %t; closed %d times, want %d; a request without it: %t", s.entry.name, l.early, l.ends, ends, s.without.Load())
		}
	}
	m.calls = slices.DeleteFunc(m.calls, func(c *slowCall) bool {
		over := !c.ends.After(time.Now())
		select {
		case err := <-c.outcome:
			if !over || (err != nil) != c.fails {
				t.Fatalf("a call ended %v before its time with %v; want an error: %t", time.Until(c.ends), err, c.fails)
			}
		default:
			if over {
				t.Fatalf("a call of server %d has not ended", c.of.number)
			}
		}
		return over
	})
}

// close ends the Set. Nothing is left of it.
func (m *setModel) close(t *rapid.T) {
	stuck, took := m.stopping(m.running)
	began := time.Now()
	if err := m.set.Close(context.Background()); (err != nil) != (len(stuck) > 0) || time.Since(began) != took {
		t.Fatalf("Close took %v and returned %v, want %v, and an error about %v", time.Since(began), err, took, stuck)
	}
	m.running, m.order = nil, nil
	m.check(t)
	if _, err := m.set.Apply(context.Background(), new(mcpjson.File)); !errors.Is(err, client.ErrClosed) {
		t.Fatalf("Apply after Close returned %v", err)
	}
	if state := m.set.Report().State; (state == supervisor.Stopped) == m.shared {
		t.Fatalf("the supervisor is %v", state)
	}
}

// abandon ends what is left.
func (m *setModel) abandon() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.set.Close(now)
	for _, s := range m.all {
		if s.server != nil {
			_ = s.server.Close(now)
		}
	}
}
