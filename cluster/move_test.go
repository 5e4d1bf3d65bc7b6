package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// observe returns an Observer of the cluster of a site.
func (s *site) observe() *cluster.Observer {
	s.t.Helper()
	o, err := cluster.Observe(s.t.Context(), s.service.Engine(), options(""))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(o.Close)
	return o
}

// A move gives the server to the node that was named, when the calls that run have ended, and at once if it runs there. All nodes reach it there.
//
// Guarantees: G-0079.11
func TestAMoveGivesTheServerToANode(t *testing.T) {
	for _, inFlight := range []int{0, 1, 100} {
		t.Run(fmt.Sprint(inFlight, " in flight"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				from, who := s.holder(), s.mustReach("a", "b", "c")
				calls := s.wait(inFlight, who)
				moved := make(chan error, 1)
				o := s.observe()
				others := s.others(from)
				slices.Sort(others)
				for _, to := range append(others, others[1], from, others[0], from) {
					began := time.Now()
					go func() { moved <- o.MoveServer(t.Context(), "machine", to) }()
					if inFlight > 0 {
						advance(cluster.GiveGrace - 2*time.Second)
						if s.holder() == to {
							t.Error("the server was moved while calls ran")
						}
						close(s.machine.hold)
						calls.Wait()
						inFlight = 0
						began = time.Now()
					}
					if err := <-moved; err != nil {
						t.Fatalf("the move to node %s: %v", to, err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("the move to node %s took %v", to, took)
					}
					if s.holder() != to {
						t.Errorf("the server was moved to node %s and runs on %q", to, s.holder())
					}
					s.awaitReady("a", "b", "c")
					if got := s.mustReach("a", "b", "c"); !strings.HasPrefix(got, to+" ") {
						t.Errorf("all reach server %q after the move to node %s", got, to)
					}
				}
				if len(s.machine.startedOn()) != 6 {
					t.Errorf("it was started on %v, want no start by the move to where it ran", s.machine.startedOn())
				}
				s.mustNotHaveExecutedTwice()
			})
		})
	}
}

// Calls that do not end in time are lost, perhaps executed, and none is executed twice.
//
// Guarantees: G-0079.11
func TestAMoveCutsCallsThatGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b", "c")
		s.awaitReady("a", "b", "c")
		from := s.holder()
		told := make(chan string, 10)
		s.nodes[from].OnMove(nil, func(server, to string, err error) { told <- fmt.Sprint(server, " ", to, " ", err != nil) })
		calls := s.callInFlight(10, "a", "b", "c")
		to, began := s.others(from)[0], time.Now()
		if err := s.nodes[from].MoveServer(t.Context(), "machine", to); err != nil {
			t.Fatal(err)
		}
		if got, want := <-told, "machine "+to+" true"; got != want || len(told) > 0 {
			t.Errorf("the program that gave the server up was told %q and %d times more, want %q", got, len(told), want)
		}
		if took := time.Since(began); took < cluster.GiveGrace-time.Second || took > cluster.GiveGrace+2*time.Second {
			t.Errorf("the move took %v, want that calls have %v", took, cluster.GiveGrace)
		}
		calls.Wait()
		s.awaitReady("a", "b", "c")
		s.mustNotHaveExecutedTwice()
	})
}

// A node that does not run the server starts it when nobody does, and is not kept from it by its rank or by its failures.
//
// Guarantees: G-0079.11
func TestAMoveStartsAServerThatNobodyRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.machine.fail(errBroken, []string{"a", "b", "c"}, nil)
		s.join("a", "b", "c")
		advance(time.Minute)
		s.machine.fail(nil, nil, nil)
		for _, to := range []string{"b", "a", "c"} {
			if err := s.observe().MoveServer(t.Context(), "machine", to); err != nil {
				t.Error(err)
			}
			if s.holder() != to {
				t.Errorf("the server was moved to %s and runs on %q", to, s.holder())
			}
		}
	})
}

// A move that cannot be says why, and the server runs on where it did.
//
// Guarantees: G-0079.12
func TestAMoveThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.zone = "x"
		for _, name := range []string{"a", "b", "c"} {
			s.add(name, cluster.UpstreamOptions{On: map[string]string{"zone": "x"}}).start(s)
		}
		s.zone = "y"
		s.add("unfit", cluster.UpstreamOptions{On: map[string]string{"zone": "x"}}).start(s)
		s.awaitReady("a", "b", "c", "unfit")
		from := s.holder()
		others := s.others(from)
		others = slices.DeleteFunc(others, func(name string) bool { return name == "unfit" })
		to := others[0]
		s.nodes[to].Upstream("absent", &stdio.Command{Path: "/no/such/program"}, cluster.UpstreamOptions{})
		s.nodes[to].Upstream("wrapped", wrapped{s.nodes[to].Upstream("wrong", wrong{}, cluster.UpstreamOptions{})}, cluster.UpstreamOptions{})
		who, o := s.mustReach("a", "b", "c", "unfit"), s.observe()
		var told, prepared []string
		s.nodes[to].OnMove(func(_ context.Context, server string) error {
			prepared = append(prepared, server)
			if server == "refused" {
				return errBroken
			}
			return nil
		}, func(server, to string, err error) { told = append(told, fmt.Sprint(server, " ", to, " ", err)) })
		for _, refused := range []struct{ server, node, want string }{
			{"machine", "nobody", "the cluster has no such node; bowline nodes lists them"},
			{"other", to, `the node has no exclusive server "other"`},
			{"refused", to, "broken"},
			{"machine", "unfit", "lacks the labels"},
			{"absent", to, "install the program there"},
			{"wrapped", to, errWrong.Error()},
		} {
			err := o.MoveServer(t.Context(), refused.server, refused.node)
			if err == nil || !strings.Contains(err.Error(), refused.want) || !strings.Contains(err.Error(), fmt.Sprintf("server %q was not moved to node %q", refused.server, refused.node)) || strings.Contains(err.Error(), "did not take") {
				t.Errorf("moving %s to %s: %v, want %q", refused.server, refused.node, err, refused.want)
			}
		}
		if want := []string{
			"other " + to + ` the node has no exclusive server "other"`, "refused " + to + " broken",
		}; len(told) != 4 || !slices.Equal(told[:2], want) || !strings.HasPrefix(told[2], "absent ") {
			t.Errorf("the program was told %q", told)
		}
		if want := []string{"other", "refused"}; !slices.Equal(prepared, want) {
			t.Errorf("the program has prepared %q, want only what the node could run: %q", prepared, want)
		}
		if err := s.nodes[to].Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := o.MoveServer(t.Context(), "machine", to); err == nil || !strings.Contains(err.Error(), "draining") {
			t.Errorf("moving to a node that drains: %v", err)
		}
		if got := s.mustReach("a", "b", "c", "unfit"); got != who {
			t.Errorf("another server runs: %s, before %s", got, who)
		}
	})
}

// A move to a node where the server does not start, or which dies or waits, ends with an error, and the server runs elsewhere soon.
//
// Guarantees: G-0079.12
func TestAMoveThatIsNotTaken(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(s *site, to string)
	}{
		{"program missing", "does not start there", func(s *site, to string) {
			s.machine.fail(&exec.Error{Name: "x", Err: fs.ErrNotExist}, []string{to}, nil)
		}},
		{"ends at once", "does not start there", func(s *site, to string) { s.machine.fail(nil, nil, []string{to}) }},
		{"no connection", "no connection of the node has started it", func(s *site, to string) { s.nodes[to].stop() }},
		{"drains meanwhile", "the node is draining", func(s *site, to string) {
			calls := s.callInFlight(1, s.others(to)...)
			go func() {
				advanceBy(2 * time.Second)
				if err := s.nodes[to].Drain(context.Background()); err != nil {
					s.t.Error(err)
				}
				calls.Wait()
			}()
		}},
		{"killed", "", func(s *site, to string) {
			calls := s.callInFlight(1, s.others(to)...)
			go func() { advanceBy(2 * time.Second); s.kill(to); calls.Wait() }()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				from := s.holder()
				to := s.others(from)[0]
				stay := s.others(to)
				c.spoil(s, to)
				began := time.Now()
				err := s.observe().MoveServer(t.Context(), "machine", to)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("the move ended with %v, want %q", err, c.want)
				}
				if took := time.Since(began); took > cluster.MoveTimeout+5*time.Second {
					t.Errorf("the move took %v", took)
				}
				if c.name != "killed" { // whose claims end with its lease
					if err := s.observe().MoveServer(t.Context(), "machine", stay[1]); err != nil {
						t.Errorf("the next move: %v", err)
					}
				}
				if took := s.awaitReady(stay...); took > cluster.LeaseTTL {
					t.Errorf("the server runs elsewhere only %v later", took)
				}
				s.mustReach(stay...)
			})
		})
	}
}

// Two moves at the same time to the same node are one, and of two to different nodes one is refused.
//
// Guarantees: G-0079.12
func TestMovesAtTheSameTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b", "c")
		s.awaitReady("a", "b", "c")
		from := s.holder()
		others := s.others(from)
		to, other := others[0], others[1]
		calls := s.callInFlight(1, from) // so that the move takes its time
		told := make(chan string, 10)
		for _, node := range []string{from, to} {
			s.nodes[node].OnMove(nil, func(_, at string, err error) { told <- fmt.Sprint(node, ": ", at, " ", err == nil) })
		}
		results := make(chan error, 2)
		o := s.observe()
		for range 2 {
			go func() { results <- o.MoveServer(t.Context(), "machine", to) }()
		}
		advance(time.Second) // both have begun
		for range 2 {        // as if an answer was lost
			if err := s.nodes[to].Ask(t.Context(), from, "give", map[string]string{"server": "machine", "to": to}, nil); err != nil {
				t.Error(err)
			}
		}
		if err := o.MoveServer(t.Context(), "machine", other); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("it is being moved to node %q", to)) {
			t.Errorf("a move to another node meanwhile: %v", err)
		}
		if err := errors.Join(<-results, <-results); err != nil {
			t.Error(err)
		}
		got := []string{<-told, <-told}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values([]string{from + ": " + to + " false", to + ": " + to + " true"})); !slices.Equal(got, want) || len(told) > 0 {
			t.Errorf("the programs were told %q and %d times more, want each once: %q", got, len(told), want)
		}
		calls.Wait()
		s.awaitReady("a", "b", "c")
		if s.holder() != to || len(s.machine.startedOn()) != 2 {
			t.Errorf("the server runs on %q, and was started on %v", s.holder(), s.machine.startedOn())
		}
	})
}

var errWrong = errors.New("the settings are wrong")

// wrong is a transport with a mistake, and wrapped one around another.
type wrong struct{ transport.Transport }

func (wrong) Check() error { return errWrong }

type wrapped struct{ transport.Transport }

func (w wrapped) Unwrap() transport.Transport { return w.Transport }

// A node that lets others try, because the server has failed on it, takes it at once when a person wants that.
//
// Guarantees: G-0079.11
func TestAMoveToANodeThatHasGivenUp(t *testing.T) {
	for _, missing := range []error{fs.ErrNotExist, fs.ErrPermission, exec.ErrNotFound} {
		t.Run(missing.Error(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				from := s.holder()
				s.machine.fail(&exec.Error{Name: "x", Err: missing}, []string{from}, nil)
				s.machine.crash()
				advance(time.Second)
				s.awaitReady("a", "b", "c")
				if got := s.machine.startedOn(); s.holder() == from || len(got) != 3 {
					t.Fatalf("the server was started on %v, want that node %s tries once and gives up", got, from)
				}
				s.machine.fail(nil, nil, nil)
				began := time.Now()
				if err := s.observe().MoveServer(t.Context(), "machine", from); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the move took %v", took)
				}
			})
		})
	}
}

// A move that takes too long says what it waits for.
//
// Guarantees: G-0079.12
func TestAMoveThatTakesTooLong(t *testing.T) {
	for _, c := range []struct {
		want  string
		spoil func(m *machine)
	}{
		{"the node has it now, but it is not ready", func(m *machine) { m.slow = time.Minute }},
		{"which runs it, has not given it up", func(m *machine) { m.lasting = time.Minute }},
	} {
		t.Run(c.want, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				s.machine.mu.Lock()
				c.spoil(s.machine)
				s.machine.mu.Unlock()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				to := s.others(s.holder())[0]
				if err := s.observe().MoveServer(ctx, "machine", to); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after the time of its caller, the move ends with %v", err)
				}
				if err := s.observe().MoveServer(t.Context(), "machine", to); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("the move ends with %v, want %q", err, c.want)
				}
				s.machine.mu.Lock()
				s.machine.slow, s.machine.lasting = 0, 0
				s.machine.mu.Unlock()
				s.awaitReady("a", "b", "c")
			})
		})
	}
}

// A node of which the one that is asked has not heard yet is moved to all the same.
//
// Guarantees: G-0079.11
func TestAMoveToANodeThatIsNew(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a")
		s.awaitReady("a")
		e := &lateEngine{Engine: s.service.Engine()}
		late, err := cluster.Join(t.Context(), e, options("late"))
		if err != nil {
			t.Fatal(err)
		}
		e.late.Store(true)
		s.join("b")
		if err := late.MoveServer(t.Context(), "machine", "b"); err != nil || s.holder() != "b" {
			t.Errorf("got %v, and node %q runs the server, want b", err, s.holder())
		}
		closeNode(t, late)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A program that is named by a relative path is looked for where it will be started, and one that is named by no path is not.
func TestWhereAProgramMustBe(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command *stdio.Command
		found   bool
	}{
		"in its folder":                 {&stdio.Command{Path: "./tool", Dir: dir}, true},
		"in the folder of the Cmd":      {&stdio.Command{Cmd: &exec.Cmd{Path: "./tool", Dir: dir}}, true},
		"the command has a folder, too": {&stdio.Command{Cmd: &exec.Cmd{Path: "./tool", Dir: "/"}, Dir: dir}, true},
		"in another folder":             {&stdio.Command{Path: "./tool", Dir: "/"}, false},
		"whole path":                    {&stdio.Command{Path: filepath.Join(dir, "tool"), Dir: "/"}, true},
		"name alone":                    {&stdio.Command{Path: "tool", Dir: dir}, false},
		"name alone, and not there":     {&stdio.Command{Path: "go", Dir: dir}, true},
	} {
		if err := cluster.Executable(c.command); (err == nil) != c.found || err != nil && !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want that it is found: %v", name, err, c.found)
		}
	}
}
