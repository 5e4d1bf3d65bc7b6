package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/protocol"
)

// A relay carries changes between the nodes of a test, at once. It holds its lock while it calls
// them. So a server that publishes under a lock which receiving needs hangs.
type relay struct {
	mu    sync.Mutex
	nodes []*relayNode
}

// A relayNode is the Changes of one server. It records what the server does.
type relayNode struct {
	*relay
	receive   func(server.Change) // nil before Subscribe, and after stop
	published []string            // guarded by mu
	at        []time.Time         // when; guarded by mu
	stops     int                 // guarded by mu
}

func (n *relayNode) Publish(c server.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.published, n.at = append(n.published, describe(c)), append(n.at, time.Now())
	for _, other := range n.nodes {
		if other != n && other.receive != nil {
			other.receive(c)
		}
	}
}

// describe says what a Change contains.
func describe(c server.Change) string {
	var parts []string
	for part, is := range map[string]bool{"tools": c.Tools, "prompts": c.Prompts, "resources": c.Resources, "missed": c.Missed, c.URI: c.URI != "", "task": c.Task != ""} {
		if is {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func (n *relayNode) Subscribe(f func(server.Change)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.receive = f
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stops++
		n.receive = nil
	}
}

// takes returns what the server has published since the last call.
func (n *relayNode) takes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.published
	n.published, n.at = nil, nil
	return all
}

// A changeServer is the server of one node, with what it publishes.
type changeServer struct {
	*server.Server
	node *relayNode
}

// join adds a node with a server, which is closed at the end of the test.
func (r *relay) join(t *testing.T, o server.Options) *changeServer {
	n := &relayNode{relay: r}
	r.nodes = append(r.nodes, n)
	o.Changes = n
	s := &changeServer{newServer(o), n}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// changeable returns the options of a server that has all lists, and its features.
func changeable() server.Options {
	o := subscribable()
	o.Capabilities = protocol.ServerCapabilities{Tools: &protocol.ListCapability{ListChanged: true}, Prompts: &protocol.ListCapability{ListChanged: true}}
	return o
}

// listensTo lists what a client may listen to.
const listensTo = `"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["x://a","x://b"]}`

// listener begins to listen to everything, in each era.
func listener(t *testing.T, s *server.Server, modernly bool) *keptPeer {
	w := &keptPeer{rawPeer: dial(t, s)}
	if modernly {
		w.send(modern(`1`, "subscriptions/listen", listensTo))
		w.want(protocol.NotificationAcknowledged)
		return w
	}
	w.initialize(protocol.Version20251125)
	for _, uri := range []string{"x://a", "x://b"} {
		w.send(about(protocol.MethodSubscribe, uri))
		w.want(`"id":1`)
	}
	return w
}

// inBothEras runs a test with a listener of each era, within a bubble.
func inBothEras(t *testing.T, test func(t *testing.T, modernly bool)) {
	for _, modernly := range []bool{false, true} {
		testenv.Bubble(t, func(t *testing.T) { test(t, modernly) })
	}
}

// A client learns of each change of what it listens to, on whichever node it happens, once, and
// 10 ms after it. What came from another node is not published again.
//
// Guarantees: G-0074.5
func TestChangesReachTheListenersOfAllNodes(t *testing.T) {
	inBothEras(t, func(t *testing.T, modernly bool) {
		r := new(relay)
		here, there := r.join(t, changeable()), r.join(t, changeable())
		ours, theirs := listener(t, here.Server, modernly), listener(t, there.Server, modernly)
		pass(time.Second)
		here.node.takes()
		for _, step := range []struct {
			change          func()
			told, published string
		}{
			{func() { addNamed(there.Server, "t") }, toldTools, "tools"},
			{func() { there.RemoveTools("t") }, toldTools, "tools"},
			{func() { there.RemoveTools("t") }, "", ""},
			{func() {
				server.AddPrompt(there.Server, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
			}, toldPrompts, "prompts"},
			{func() {
				server.AddResource(there.Server, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
			}, toldResources, "resources"},
			{func() { there.ResourceUpdated("x://a") }, toldUpdated + "x://a", "x://a"},
			{func() { there.ResourceUpdated("x://c") }, "", "x://c"},
		} {
			var told, published []string
			if step.told != "" {
				told = append(told, step.told)
			}
			if step.published != "" {
				published = append(published, step.published)
			}
			step.change()
			ours.wantTold(told...) // after 10 ms
			theirs.wantTold(told...)
			if got := there.node.takes(); !slices.Equal(got, published) {
				t.Errorf("%q was published, want %q", got, published)
			}
			pass(time.Second)
		}
		ours.wantTold()
		theirs.wantTold()
		if got := here.node.takes(); len(got) > 0 {
			t.Errorf("the changes of another node were published again: %q", got)
		}
	})
}

// A node publishes the first change at once. What changes in the next 10 ms is published after
// them, together.
//
// Guarantees: G-0074.6
func TestChangesArePublishedTogether(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := new(relay).join(t, changeable())
		began := time.Now()
		for range 100 { // 100 ms in total
			for range 10 {
				addNamed(s.Server, "t")
				s.ResourceUpdated("x://a")
			}
			pass(time.Millisecond)
		}
		pass(time.Second)
		synctest.Wait()
		tools := 0
		for i, what := range s.node.published {
			if what == "tools" {
				if after := s.node.at[i].Sub(began); after != time.Duration(tools)*changeInterval {
					t.Errorf("number %d was published after %v", tools, after)
				}
				tools++
			} else if what != "x://a" {
				t.Errorf("%q was published", what)
			}
		}
		if tools != 11 || len(s.node.published) > 22 {
			t.Errorf("the tools were published %d times, of %d, want 11 of 22", tools, len(s.node.published))
		}
		s.node.takes()
		addNamed(s.Server, "t")
		server.AddPrompt(s.Server, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
		s.ResourceUpdated("x://b")
		pass(time.Second)
		all := strings.Join(s.node.takes(), ",")
		if !slices.Contains([]string{"prompts tools,x://b", "tools,prompts,x://b", "tools,x://b,prompts", "tools,prompts,x://b"}, all) {
			t.Errorf("%q was published", all)
		}
	})
}

// If more than 1,024 resources change at once, the other nodes are told that any may have.
//
// Guarantees: G-0074.6
func TestTooManyChangesArePublishedAsMissed(t *testing.T) {
	inBothEras(t, func(t *testing.T, modernly bool) {
		r := new(relay)
		here, there := r.join(t, changeable()), r.join(t, changeable())
		w := listener(t, here.Server, modernly)
		there.ResourceUpdated("x://first")
		pass(time.Millisecond)
		for i := range 1024 {
			there.ResourceUpdated(fmt.Sprint("x://", i))
		}
		there.ResourceUpdated("x://0") // again
		pass(time.Second)
		if got := there.node.takes(); len(got) != 1025 || slices.Contains(got, "missed") {
			t.Errorf("%d changes were published, want 1,025", len(got))
		}
		w.wantTold()
		there.ResourceUpdated("x://first")
		pass(time.Millisecond)
		for i := range 1025 {
			there.ResourceUpdated(fmt.Sprint("x://", i))
		}
		pass(time.Second)
		if got := there.node.takes(); !slices.Equal(got, []string{"x://first", "missed"}) {
			t.Errorf("%d changes were published: %.100q", len(got), got)
		}
		w.wantTold(toldTools, toldPrompts, toldResources, toldUpdated+"x://a", toldUpdated+"x://b")
	})
}

// After Missed, a client is told of everything that it listens to, once.
//
// Guarantees: G-0074.7
func TestMissedChangesAreTold(t *testing.T) {
	inBothEras(t, func(t *testing.T, modernly bool) {
		s := new(relay).join(t, changeable())
		w, silent := listener(t, s.Server, modernly), &keptPeer{rawPeer: dial(t, s.Server)}
		s.node.receive(server.Change{Missed: true})
		everything := []string{toldTools, toldPrompts, toldResources, toldUpdated + "x://a", toldUpdated + "x://b"}
		w.wantTold(everything...)
		silent.wantTold()
		for range 10 { // all of these within 5 s
			s.node.receive(server.Change{Missed: true})
			pass(100 * time.Millisecond)
		}
		w.wantTold()
		s.ResourceUpdated("x://a") // other changes are not delayed
		w.wantTold(toldUpdated + "x://a")
		pass(5 * time.Second)
		w.wantTold(everything...)
		pass(time.Minute)
		w.wantTold()
		s.node.receive(server.Change{Missed: true})
		w.wantTold(everything...)
		if got := s.node.takes(); !slices.Equal(got, []string{"x://a"}) {
			t.Errorf("%q was published", got)
		}
	})
}

// A client that listens to a task on another node is notified of each of its states that is
// saved. The status message is not saved, so it is not published.
//
// Guarantees: G-0074.8
func TestTasksOnOtherNodesAreWatched(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r, o := new(relay), server.Options{Tasks: &server.TaskOptions{Store: new(server.MemoryTaskStore)}}
		here, there := r.join(t, o), r.join(t, o)
		reports, goOn := make(chan struct{}), make(chan struct{})
		server.AddTool(there.Server, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				<-reports
				server.Progress(ctx, 1, 2, "half")
				<-goOn
				return "done", nil
			})
		id := dial(t, there.Server).beginTask("work")
		w := dial(t, here.Server)
		w.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["`+id+`"]}`))
		w.want(`"taskIds":["` + id + `"]`)
		pass(time.Second)
		there.node.takes()
		close(reports)
		pass(time.Second)
		w.wantNothing()
		if got := there.node.takes(); len(got) > 0 {
			t.Errorf("%q was published", got)
		}
		here.node.receive(server.Change{Missed: true})
		w.want(protocol.NotificationTask, `"status":"working"`)
		close(goOn)
		w.want(protocol.NotificationTask, `"status":"completed"`, `"text":"done"`)
		pass(time.Minute)
		w.wantNothing()
		if got := there.node.takes(); !slices.Equal(got, []string{"task"}) {
			t.Errorf("%q was published", got)
		}
		if got := here.node.takes(); len(got) > 0 {
			t.Errorf("the changes of another node were published again: %q", got)
		}
	})
}

// A server subscribes when it is made. When it closes, it publishes what is left, such as the
// end of its tasks, and ends the subscription. Then it neither publishes nor receives.
//
// Guarantees: G-0074.6
func TestClosedServerHasNoChanges(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := new(relay)
		n := &relayNode{relay: r}
		r.nodes = append(r.nodes, n)
		o := changeable()
		o.Changes, o.Tasks = n, new(server.TaskOptions)
		s := newServer(o)
		if n.receive == nil {
			t.Fatal("the server has not subscribed")
		}
		server.AddTool(s, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		ours := dial(t, s)
		ours.beginTask("work")
		pass(time.Second)
		n.takes()
		n.receive(server.Change{Missed: true}) // is being told while the server closes
		s.ResourceUpdated("x://a")
		s.ResourceUpdated("x://b")
		receive := n.receive
		began := time.Now()
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if got := n.takes(); !slices.Contains(got, "x://a") || !slices.Contains(got, "x://b") || !slices.Contains(got, "task") || n.stops != 1 {
			t.Errorf("%q was published, and stop was called %d times", got, n.stops)
		}
		addNamed(s, "late")
		receive(server.Change{Missed: true})
		pass(time.Minute)
		if got := n.takes(); len(got) > 0 {
			t.Errorf("%q was published after Close", got)
		}
		quiet := r.join(t, changeable()) // nothing waits when it closes
		quiet.Close(t.Context())
		addNamed(quiet.Server, "late")
		pass(time.Minute)
		if got := quiet.node.takes(); len(got) > 0 {
			t.Errorf("%q was published after Close", got)
		}
	})
}

// What changes while Publish runs is published after 10 ms.
//
// Guarantees: G-0074.6
func TestChangeDuringPublish(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var s *server.Server
		var published []time.Time
		o := changeable()
		o.Changes = &faultyChanges{subscribe: func() {}, stop: func() {}, publish: func() {
			published = append(published, time.Now())
			if len(published) == 1 {
				s.ResourceUpdated("x://meanwhile")
			}
		}}
		s = newServer(o)
		s.ResourceUpdated("x://a")
		pass(time.Second)
		synctest.Wait()
		if len(published) != 2 || published[1].Sub(published[0]) != changeInterval {
			t.Errorf("changes were published at %v", published)
		}
		s.Close(t.Context())
	})
}

// faultyChanges do in each method what the test says.
type faultyChanges struct{ publish, subscribe, stop func() }

func (f *faultyChanges) Publish(server.Change) { f.publish() }
func (f *faultyChanges) Subscribe(func(server.Change)) (stop func()) {
	f.subscribe()
	return f.stop
}

// A panic of Changes is reported, and affects nothing else.
//
// Guarantees: G-0009.10
func TestPanicOfChanges(t *testing.T) {
	for where, faulty := range map[string]*faultyChanges{
		"Changes.Publish":   {publish: panicBroken, subscribe: func() {}, stop: func() {}},
		"Changes.Subscribe": {publish: func() {}, subscribe: panicBroken, stop: func() {}},
		"Changes: stop":     {publish: func() {}, subscribe: func() {}, stop: panicBroken},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			o, panics := reporting(changeable())
			o.Changes = faulty
			s := newServer(o)
			if where == "Changes.Subscribe" {
				wantPanics(t, panics, where)
			}
			w := dial(t, s)
			w.initialize(protocol.Version20251125)
			for range 2 {
				addNamed(s, "t")
				w.want(announcement)
				if where == "Changes.Publish" {
					wantPanics(t, panics, where)
				}
				pass(time.Second)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if where == "Changes: stop" {
				wantPanics(t, panics, where)
			}
			wantPanics(t, panics)
		})
	}
}

// Close does not wait for Changes that do not return, and names them.
func TestCloseNamesChangesThatDoNotReturn(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		goOn := make(chan struct{})
		wait := func() { <-goOn }
		for _, faulty := range []*faultyChanges{
			{publish: wait, subscribe: func() {}, stop: func() {}},
			{publish: func() {}, subscribe: func() {}, stop: wait},
		} {
			o := changeable()
			o.Changes = faulty
			s := newServer(o)
			addNamed(s, "t")
			synctest.Wait()
			var stuck *conn.StuckError
			if err := s.Close(t.Context()); !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"Changes"}) {
				t.Errorf("got %v, want a StuckError that names Changes", err)
			}
		}
		close(goOn)
	})
}

// Nodes that change at the same time do not wait for each other.
//
// Guarantees: G-0074.6
func TestNodesChangeAtTheSameTime(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := new(relay)
		var nodes []*changeServer
		for range 3 {
			nodes = append(nodes, r.join(t, changeable()))
		}
		var group sync.WaitGroup
		for _, s := range nodes {
			for i := range 10 {
				group.Go(func() {
					for range 20 {
						addNamed(s.Server, "t")
						s.ResourceUpdated(fmt.Sprint("x://", i))
						s.node.mu.Lock()
						receive := s.node.receive
						s.node.mu.Unlock()
						receive(server.Change{Tools: true, Missed: i == 0})
						pass(time.Millisecond)
					}
				})
			}
		}
		group.Wait()
	})
}

// The Changes of the example keep the contract.
func TestLocalChangesKeepTheContract(t *testing.T) {
	stores.ChangesContract(t, func(*testing.T) stores.Changes {
		l := new(localChanges)
		return stores.Changes{A: l.join(), B: l.join(), C: l.join()}
	}, proptest.ContractOptions{})
}
