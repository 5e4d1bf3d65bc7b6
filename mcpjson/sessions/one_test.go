//go:build unix

package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A server that was stopped stays so until somebody starts it, or the file says something else of it.
//
// Guarantees: G-0041.8
func TestOneServerIsStoppedAndStarted(t *testing.T) {
	s := newSet(t, Options{})
	const file, changed = `"a": $SELF{}, "b": $SELF{}`, `"a": $SELF{"env": {"SAID": "two"}}, "b": $SELF{}`
	failOn := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	isStopped := func() {
		t.Helper()
		if _, running := s.Session("a"); running {
			t.Fatal("it runs")
		}
	}
	failOn(apply(t, s, parse(t, file), Changes{Started: []string{"a", "b"}}))
	first, other := processOf(t, s, "a"), processOf(t, s, "b")
	failOn(s.Restart(t.Context(), "a"))
	second := processOf(t, s, "a")
	if second.Pid == first.Pid {
		t.Error("it was not restarted")
	}
	failOn(s.Start(t.Context(), "a"))
	if processOf(t, s, "a").Pid != second.Pid {
		t.Error("one that runs was started again")
	}
	failOn(s.Stop(t.Context(), "a"))
	isStopped()
	failOn(apply(t, s, parse(t, file), Changes{}))
	isStopped()
	failOn(s.Start(t.Context(), "a"))
	processOf(t, s, "a")
	failOn(s.Stop(t.Context(), "a"))
	failOn(apply(t, s, parse(t, changed), Changes{Started: []string{"a"}}))
	processOf(t, s, "a")
	failOn(s.Stop(t.Context(), "a"))
	failOn(apply(t, s, parse(t, `"b": $SELF{}`), Changes{}))
	failOn(apply(t, s, parse(t, changed), Changes{Started: []string{"a"}}))
	if processOf(t, s, "b").Pid != other.Pid {
		t.Error("the other server was touched")
	}
	for _, act := range []func() error{
		func() error { return s.Stop(t.Context(), "c") }, func() error { return s.Start(t.Context(), "c") }, func() error { return s.Restart(t.Context(), "c") },
	} {
		if err := act(); !errors.Is(err, mcpjson.ErrNotFound) {
			t.Errorf("a server that is not there: %v", err)
		}
	}
}

// A server that starts on demand is left to Start, also when its settings change while it does not run. It is stopped only if that is still wanted when nobody else acts
// on it.
//
// Guarantees: G-0041.9
func TestServersOnDemand(t *testing.T) {
	onDemand := true
	s := newSet(t, Options{OnDemand: func(server *mcpjson.Server) bool { return onDemand && server.Name == "a" }})
	runs := func(name string) bool {
		_, running := s.Session(name)
		return running
	}
	for _, file := range []string{`"a": $SELF{}, "b": $SELF{}`, `"a": $SELF{"env": {"SAID": "two"}}, "b": $SELF{}`} {
		changes := Changes{Started: []string{"b"}}
		if runs("b") {
			changes = Changes{}
		}
		if err := apply(t, s, parse(t, file), changes); err != nil || runs("a") {
			t.Fatalf("it was started: %t, %v", runs("a"), err)
		}
		onDemand = false // as long as the settings are the same, it stays as it is
		if err := apply(t, s, parse(t, file), Changes{}); err != nil || runs("a") {
			t.Fatalf("it was started by an Apply of the same settings: %t, %v", runs("a"), err)
		}
		onDemand = true
	}
	stop := func(still, want bool) {
		t.Helper()
		if err := s.StopIf(t.Context(), "a", func() bool { return still }); err != nil || runs("a") != want {
			t.Fatalf("it runs: %t, %v", runs("a"), err)
		}
	}
	if err := s.Start(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	stop(false, true)
	stop(true, false)
	if err := s.StopIf(t.Context(), "a", func() bool { t.Error("asked about a server that does not run"); return true }); err != nil {
		t.Error(err)
	}
	if err := s.StopIf(t.Context(), "c", nil); !errors.Is(err, mcpjson.ErrNotFound) {
		t.Errorf("a server that is not there: %v", err)
	}
	if err := s.Restart(t.Context(), "a"); err != nil || !runs("a") {
		t.Errorf("it was not started: %v", err)
	}
	// One that runs is restarted with other settings, as every server is.
	if err := apply(t, s, parse(t, `"a": $SELF{"env": {"SAID": "three"}}, "b": $SELF{}`), Changes{Restarted: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if said := processOf(t, s, "a").Said; said != "three" {
		t.Errorf("it has the settings %q", said)
	}
}

// Whoever is asked for the values of servers that are started at the same time, is asked one question after the other.
func TestServersThatAskAreStartedAtTheSameTime(t *testing.T) {
	s := newSet(t, Options{})
	names := []string{"a", "b", "c", "d", "e", "f"}
	var servers, inputs []string
	for _, name := range names {
		servers = append(servers, fmt.Sprintf(`%q: {"url": "http://127.0.0.1:1/mcp", "headers": {"Key": "${input:%s}"}}`, name, name))
		inputs = append(inputs, fmt.Sprintf(`{"id": %q, "type": "promptString", "description": "d"}`, name))
	}
	file, err := mcpjson.Parse("mcp.json", fmt.Appendf(nil, `{"inputs": [%s], "mcpServers": {%s}}`, strings.Join(inputs, ", "), strings.Join(servers, ", ")))
	if err != nil {
		t.Fatal(err)
	}
	file.Ask = func(mcpjson.Input) (string, error) { return "", errors.New("nobody is there") }
	if err := apply(t, s, file, Changes{Failed: names}); err == nil {
		t.Fatal("servers without values were started")
	}
	var asking atomic.Int32
	file.Ask = func(mcpjson.Input) (string, error) {
		defer asking.Add(-1)
		if asking.Add(1) > 1 {
			t.Error("two questions are asked at the same time")
		}
		for range 1000 { // others could ask meanwhile
			runtime.Gosched()
		}
		return "value", nil
	}
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			if err := s.Start(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// While one server takes long to end, others can be started, and one that is started again waits for it.
//
// Guarantees: G-0041.8
func TestAServerThatTakesLongToEnd(t *testing.T) {
	ending, end := make(chan struct{}), make(chan struct{})
	block := sync.OnceFunc(func() {
		close(ending)
		<-end
	})
	s := newSet(t, Options{Login: func(of *mcpjson.Server) (Login, error) {
		return recordedLogin{func() {
			if of.Name == "a" {
				block()
			}
		}}, nil
	}})
	const file = `"a": {"url": "http://127.0.0.1:1/mcp"}, "b": {"url": "http://127.0.0.1:1/mcp"}`
	if err := apply(t, s, parse(t, file), Changes{Started: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	first, _ := s.Session("a")
	ended, started := make(chan error, 1), make(chan error, 1)
	go func() { ended <- s.Stop(t.Context(), "a") }()
	<-ending
	if err := errors.Join(s.Stop(t.Context(), "b"), s.Start(t.Context(), "b")); err != nil {
		t.Error(err)
	}
	go func() { started <- s.Start(context.WithoutCancel(t.Context()), "a") }()
	close(end)
	if err := errors.Join(<-ended, <-started); err != nil {
		t.Error(err)
	}
	if second, running := s.Session("a"); running && second == first {
		t.Error("it has the session that was stopped")
	}
}

// While an Apply waits for what it ends, it keeps from others only the servers about which it does something. One that is as it was, one that is
// stopped, and one that has a mistake can be used. A copy whose server has other settings is started again after it has ended.
//
// Guarantees: G-0041.8, G-0041.10
func TestWhoWaitsForAnApply(t *testing.T) {
	yes := func() bool { return true }
	testenv.Bubble(t, func(t *testing.T) {
		ending, end := make(chan struct{}), make(chan struct{})
		block := sync.OnceFunc(func() {
			close(ending)
			<-end
		})
		s := New(protocol.Implementation{Name: "test", Version: "1"}, Options{
			OnDemand: func(of *mcpjson.Server) bool { return of.Name == "copied" },
			Each: func(of *mcpjson.Server, o *client.Options) {
				of.Transport.(*streamable.Client).HTTP = &http.Client{Transport: nobody{}}
				o.Conn.Log = slog.New(slog.DiscardHandler)
			},
			LoginCopy: func(of *mcpjson.Server, _ string) (Login, error) {
				return recordedLogin{func() {
					if of.Name == "copied" {
						block()
					}
				}}, nil
			},
		})
		const same = `"same": {"url": "http://s/mcp"}, "stopped": {"url": "http://s/mcp"}, `
		err := errors.Join(
			apply(t, s, parse(t, same+`"mistaken": {"url": "http://s/mcp"}, "copied": {"url": "http://s/mcp"}`), Changes{Started: []string{"same", "stopped", "mistaken"}}),
			s.Stop(t.Context(), "stopped"), s.StartCopy(t.Context(), "copied", "a copy", yes), s.StartCopy(t.Context(), "mistaken", "another", yes))
		if err != nil {
			t.Fatal(err)
		}
		first, _ := s.Copy("copied", "a copy")
		applied := make(chan error, 1)
		go func() {
			_, err := s.Apply(t.Context(), parse(t, same+`"mistaken": {"url": "http://s/mcp", "timeout": "long"}, "copied": {"url": "http://s/other"}`))
			applied <- err
		}()
		<-ending
		acts := map[string]func() error{
			"same":     func() error { return s.Restart(t.Context(), "same") },
			"stopped":  func() error { return s.Start(t.Context(), "stopped") },
			"mistaken": func() error { return s.StopCopyIf(t.Context(), "mistaken", "another", yes) },
			"copied":   func() error { return s.StartCopy(t.Context(), "copied", "a copy", yes) },
		}
		acted := make(chan error, len(acts))
		did := make(map[string]bool)
		var mu sync.Mutex
		for name, act := range acts {
			go func() {
				err := act()
				mu.Lock()
				defer mu.Unlock()
				did[name] = true
				acted <- err
			}()
		}
		synctest.Wait()
		mu.Lock()
		for name := range acts {
			if want := name != "copied"; did[name] != want {
				t.Errorf("%s: it was acted on during Apply: %t, want %t", name, did[name], want)
			}
		}
		mu.Unlock()
		close(end)
		for range acts {
			if err := <-acted; err != nil {
				t.Error(err)
			}
		}
		var mistake *mcpjson.Error
		if err := <-applied; !errors.As(err, &mistake) {
			t.Errorf("Apply returned %v, want the mistake of one server", err)
		}
		if second, runs := s.Copy("copied", "a copy"); !runs || second.Conn() == first.Conn() {
			t.Errorf("the copy runs: %t; it is to be another one", runs)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Whatever starts or ends a session waits while somebody else acts on the same server, also if that server does not run yet, and then finds what that has
// left. Meanwhile another server can be acted on.
//
// Guarantees: G-0041.5, G-0041.8, G-0041.9, G-0041.10
func TestOneAfterTheOtherActsOnAServer(t *testing.T) {
	yes := func() bool { return true }
	const file = `"a": {"url": "http://s/mcp"}, "b": {"url": "http://s/mcp"}`
	for name, c := range map[string]struct {
		act         func(context.Context, *Set) error
		both        bool // it acts on both servers, so another one has to wait, too
		runs, copys bool // what is left in the end of the session, and of the copy that was started meanwhile
	}{
		"start":        {func(ctx context.Context, s *Set) error { return s.Start(ctx, "a") }, false, true, true},
		"restart":      {func(ctx context.Context, s *Set) error { return s.Restart(ctx, "a") }, false, true, false},
		"stop":         {func(ctx context.Context, s *Set) error { return s.Stop(ctx, "a") }, false, false, false},
		"stop if":      {func(ctx context.Context, s *Set) error { return s.StopIf(ctx, "a", yes) }, false, false, true},
		"start a copy": {func(ctx context.Context, s *Set) error { return s.StartCopy(ctx, "a", "a 1", yes) }, false, false, true},
		"stop a copy":  {func(ctx context.Context, s *Set) error { return s.StopCopyIf(ctx, "a", "a 1", yes) }, false, false, false},
		"the same file": {func(ctx context.Context, s *Set) error {
			_, err := s.Apply(ctx, parse(t, file))
			return err
		}, false, false, true},
		"another file": {func(ctx context.Context, s *Set) error {
			_, err := s.Apply(ctx, parse(t, `"a": {"url": "http://s/other"}, "b": {"url": "http://s/mcp"}`))
			return err
		}, false, true, false},
		"a file without it": {func(ctx context.Context, s *Set) error {
			_, err := s.Apply(ctx, parse(t, `"b": {"url": "http://s/mcp"}`))
			return err
		}, false, false, false},
		"close": {func(ctx context.Context, s *Set) error { return s.Close(ctx) }, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				s := New(protocol.Implementation{Name: "test", Version: "1"}, Options{Each: func(of *mcpjson.Server, o *client.Options) {
					of.Transport, o.Conn.Log = away{}, slog.New(slog.DiscardHandler)
				}})
				if err := errors.Join(apply(t, s, parse(t, file), Changes{Started: []string{"a", "b"}}), s.Stop(t.Context(), "a")); err != nil {
					t.Fatal(err)
				}
				first, second, answer := make(chan error, 1), make(chan error, 1), make(chan struct{})
				go func() { first <- s.StartCopy(t.Context(), "a", "a 1", func() bool { <-answer; return true }) }()
				synctest.Wait()
				go func() { second <- c.act(t.Context(), s) }()
				synctest.Wait()
				select {
				case err := <-second:
					t.Errorf("it has not waited: %v", err)
					second <- err
				default:
				}
				if !c.both {
					if err := s.Restart(t.Context(), "b"); err != nil {
						t.Errorf("another server: %v", err)
					}
				}
				close(answer)
				if err := errors.Join(<-first, <-second); err != nil {
					t.Error(err)
				}
				_, runs := s.Session("a")
				_, copies := s.Copy("a", "a 1")
				if runs != c.runs || copies != c.copys {
					t.Errorf("its session runs: %t, want %t; the copy: %t, want %t", runs, c.runs, copies, c.copys)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if acting := s.acting.names(); len(acting) > 0 {
					t.Errorf("somebody still has the turns of %v", acting)
				}
			})
		})
	}
}

// Everything that a Set does can be done at the same time, also while it is closed. The race detector sees what is not guarded. In the end
// nothing is left.
//
// Guarantees: G-0041.5
func TestASetIsUsedByManyAtOnce(t *testing.T) {
	guard(t)
	quiet := slog.New(slog.DiscardHandler)
	yes := func() bool { return true }
	for range 4 {
		s := New(protocol.Implementation{Name: "test", Version: "1"}, Options{
			Each:     func(of *mcpjson.Server, o *client.Options) { of.Transport, o.Conn.Log = away{}, quiet },
			OnDemand: func(of *mcpjson.Server) bool { return of.Name == "c" },
		})
		ctx := t.Context()
		acts := []func(name string) error{
			func(string) error {
				_, err := s.Apply(ctx, parse(t, `"a": $SELF{}, "b": $SELF{}, "c": $SELF{}`))
				return err
			},
			func(string) error {
				_, err := s.Apply(ctx, parse(t, `"c": $SELF{}, "a": $SELF{"env": {"SAID": "two"}}`))
				return err
			},
			func(name string) error { return s.Start(ctx, name) },
			func(name string) error { return s.Stop(ctx, name) },
			func(name string) error { return s.Restart(ctx, name) },
			func(name string) error { return s.StopIf(ctx, name, yes) },
			func(name string) error { return s.StartCopy(ctx, name, name+" 1", yes) },
			func(name string) error { return s.StopCopyIf(ctx, name, name+" 1", yes) },
			func(name string) error {
				s.Session(name)
				s.Copy(name, name+" 1")
				for range s.Sessions() {
				}
				_ = s.Report()
				return s.RootsChanged(ctx)
			},
		}
		var all sync.WaitGroup
		begin, finished := make(chan struct{}), make(chan struct{}, len(acts))
		for _, act := range acts {
			all.Go(func() {
				defer func() { finished <- struct{}{} }()
				<-begin
				for range 30 {
					for _, name := range []string{"a", "b", "c"} {
						if err := act(name); err != nil && !errors.Is(err, client.ErrClosed) && !errors.Is(err, mcpjson.ErrNotFound) {
							t.Error(err)
						}
					}
				}
			})
		}
		close(begin)
		for range len(acts) / 2 { // the others are still busy
			<-finished
		}
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		all.Wait()
		for _, name := range []string{"a", "b", "c"} {
			_, runs := s.Session(name)
			_, copies := s.Copy(name, name+" 1")
			if runs || copies {
				t.Errorf("after Close, %s runs: %t, and its copy: %t", name, runs, copies)
			}
		}
	}
}
