package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A machine is something that only one server at a time may use. It notes who does.
type machine struct {
	t *testing.T

	mu       sync.Mutex
	uses     int // servers that run
	starts   []string
	executed map[string]int   // calls by their text
	hold     chan struct{}    // calls of the tool "wait" end when it is closed
	waiting  chan struct{}    // one for each call that has begun to wait
	broken   map[string]error // why it does not start on a node
	dying    map[string]bool  // on these nodes it ends at once
	slow     time.Duration    // how long it takes to start
	lasting  time.Duration    // how long it takes to end
	stuck    error            // of the Close of servers that then run on
	stop     func()           // ends the last one that has started, as if it crashed
}

func newMachine(t *testing.T) *machine {
	return &machine{
		t: t, executed: map[string]int{}, hold: make(chan struct{}), waiting: make(chan struct{}, 1000),
		broken: map[string]error{}, dying: map[string]bool{},
	}
}

// on returns the transport that starts the server of the machine on a node.
func (m *machine) on(node string) transport.Transport { return &starter{m, node} }

type starter struct {
	*machine
	node string
}

// Traits implements transport.Describer.
func (*starter) Traits() transport.Traits { return transport.Traits{StartsProcess: true} }

// Open implements transport.Transport.
func (s *starter) Open(ctx context.Context) (transport.Link, error) {
	m := s.machine
	m.mu.Lock()
	slow := m.slow
	m.mu.Unlock()
	advanceBy(slow)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts = append(m.starts, s.node)
	if err := m.broken[s.node]; err != nil {
		return nil, err
	}
	if m.uses++; m.uses > 1 {
		m.t.Errorf("node %s starts the server while it runs: %v", s.node, m.starts)
	}
	near, far := inmem.Pipe(inmem.Options{})
	run := &machineRun{Link: near, machine: m, server: m.server(fmt.Sprintf("%s %d", s.node, len(m.starts)))}
	run.server.Accept(far)
	m.stop = func() { far.Close(0) }
	if m.dying[s.node] {
		m.stop()
	}
	return run, nil
}

func advanceBy(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
}

// server returns a server with the tools of the machine.
func (m *machine) server(name string) *server.Server {
	o := server.Options{}
	o.Conn.MaxServing = 1000
	o.Conn.Log = slog.New(slog.DiscardHandler)
	s := server.New(protocol.Implementation{Name: name, Version: "1"}, o)
	type input struct {
		Text string `json:"text"`
	}
	count := func(text string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.executed[text]++
	}
	server.AddTool(s, protocol.Tool{Name: "who"}, func(_ context.Context, in input) (string, error) {
		count(in.Text)
		return name, nil
	})
	server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in input) (string, error) {
		count(in.Text)
		m.waiting <- struct{}{}
		select {
		case <-m.hold:
			return name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return s
}

// A machineRun is the link to a server of the machine, which ends with its Close.
type machineRun struct {
	transport.Link
	machine *machine
	server  *server.Server
	ended   sync.Once
}

// Close implements transport.Link.
func (r *machineRun) Close(grace time.Duration) error {
	err := r.Link.Close(grace)
	r.machine.mu.Lock()
	lasting := r.machine.lasting
	r.machine.mu.Unlock()
	advanceBy(lasting)
	r.ended.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.server.Close(ctx) // it is cut short
		r.machine.mu.Lock()
		defer r.machine.mu.Unlock()
		if r.machine.stuck == nil {
			r.machine.uses--
		}
	})
	return errors.Join(err, r.machine.stuckNow())
}

func (m *machine) stuckNow() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stuck
}

// crash ends the server that runs.
func (m *machine) crash() {
	m.mu.Lock()
	stop := m.stop
	m.mu.Unlock()
	stop()
}

// fail sets on which nodes the server does not start, and why, and on which it ends at once.
func (m *machine) fail(why error, broken, dying []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.broken)
	clear(m.dying)
	for _, node := range broken {
		m.broken[node] = why
	}
	for _, node := range dying {
		m.dying[node] = true
	}
}

// executions returns how often calls with a text were executed.
func (m *machine) executions(text string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.executed[text]
}

func (m *machine) startedOn() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.starts...)
}

// runs returns how many servers run.
func (m *machine) runs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uses
}

// runsOn reports whether the server runs on a node. As only one may run at a time, that is the one that has started last.
func (m *machine) runsOn(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uses > 0 && m.starts[len(m.starts)-1] == node
}

// A site is a cluster whose nodes use one machine.
type site struct {
	t       *testing.T
	service *clustertest.Service
	doors   *doors
	machine *machine
	nodes   map[string]*siteNode
	zone    string // of the nodes that are added
}

// A siteNode is a node of a site, with the client of its program.
type siteNode struct {
	testNode
	upstream transport.Transport
	session  *client.Session
}

func newSite(t *testing.T) *site {
	return &site{t, clustertest.New(clustertest.Options{}), newDoors(), newMachine(t), map[string]*siteNode{}, "x"}
}

// join adds nodes, and starts their clients.
func (s *site) join(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.add(name, cluster.UpstreamOptions{}).start(s)
	}
}

// add adds a node without a client.
func (s *site) add(name string, o cluster.UpstreamOptions) *siteNode {
	s.t.Helper()
	return s.enter(options(name), o)
}

// addWithLog adds a node without a client that logs to a handler.
func (s *site) addWithLog(name string, h slog.Handler) *siteNode {
	s.t.Helper()
	o := options(name)
	o.Log = slog.New(h)
	return s.enter(o, cluster.UpstreamOptions{})
}

func (s *site) enter(node cluster.Options, o cluster.UpstreamOptions) *siteNode {
	s.t.Helper()
	name := node.Node
	node.Labels = map[string]string{"zone": s.zone}
	n := &siteNode{testNode: joinWith(s.t, s.service, node, &cluster.Clock{})}
	n.SetCarrier(s.doors.of(name))
	n.upstream = n.Upstream("machine", s.machine.on(name), o)
	s.nodes[name] = n
	return n
}

// start starts the client of a node.
func (n *siteNode) start(s *site) {
	s.t.Helper()
	o := client.Options{ProtocolVersion: protocol.LatestLegacy}
	o.Conn.Log = slog.New(slog.DiscardHandler)
	session, err := client.New(protocol.Implementation{Name: "test", Version: "1"}, o).Start(context.Background(), n.Name(), n.upstream)
	if err != nil {
		s.t.Fatal(err)
	}
	n.session = session
	s.t.Cleanup(n.stop)
}

func (n *siteNode) stop() {
	n.session.Stop()
	<-n.session.Conn().Done()
}

// who asks the server through a node which it is.
func (s *site) who(node, text string) (string, error) {
	return client.Call[string](s.t.Context(), s.nodes[node].session, "who", map[string]string{"text": text})
}

// mustReach checks that all of the nodes reach the same server, and returns which.
func (s *site) mustReach(nodes ...string) (who string) {
	s.t.Helper()
	for _, node := range nodes {
		got, err := s.who(node, "")
		if err != nil || who != "" && got != who {
			s.t.Fatalf("node %s reached %q, %v, want %q", node, got, err, who)
		}
		who = got
	}
	return who
}

// wait begins so many calls at each node. They go on until the machine lets them, and who is to answer them.
func (s *site) wait(inFlight int, who string) *sync.WaitGroup {
	calls := new(sync.WaitGroup)
	for node, n := range s.nodes {
		for i := range inFlight {
			calls.Go(func() {
				got, err := client.Call[string](s.t.Context(), n.session.With(client.CallOptions{Timeout: time.Hour}), "wait", map[string]string{"text": fmt.Sprint(node, i)})
				if got != who || err != nil {
					s.t.Errorf("a call in flight of node %s got %q, %v", node, got, err)
				}
			})
			<-s.machine.waiting
		}
	}
	return calls
}

// awaitReady waits until calls through the nodes reach a server, and returns how long that took.
func (s *site) awaitReady(nodes ...string) time.Duration {
	s.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	for _, node := range nodes {
		session := s.nodes[node].session.With(client.CallOptions{WaitForReady: true, Retries: 1000})
		if _, err := client.Call[string](ctx, session, "who", map[string]string{"text": ""}); err != nil {
			s.t.Fatalf("node %s: %v", node, err)
		}
	}
	return time.Since(began)
}

// holder returns the node on which the server runs; "" if that is none.
func (s *site) holder() (holder string) {
	s.t.Helper()
	for name, n := range s.nodes {
		if len(n.Report().Exclusive) > 0 {
			if holder != "" {
				s.t.Errorf("the server runs on %s and %s", holder, name)
			}
			holder = name
		}
	}
	return holder
}

// others returns the nodes but one.
func (s *site) others(but string) (all []string) {
	for name := range s.nodes {
		if name != but {
			all = append(all, name)
		}
	}
	return all
}

// kill ends a node as kill -9 does: its server ends, its claim does not.
func (s *site) kill(node string) {
	s.t.Helper()
	n := s.nodes[node]
	delete(s.nodes, node)
	n.engine.Cut()
	s.doors.shut(node, true)
	n.stop()
	closeNode(s.t, n.Node)
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) { f(t, newSite(t)) })
}

var errBroken = errors.New("broken")
