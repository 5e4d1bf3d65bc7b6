//go:build unix && cluster

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/conn"
	mcpclient "github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/locked"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Variables of a process that is a node of a test.
const (
	nodeVariable   = "BOWLINE_EMBEDDED_TEST_NODE"
	folderVariable = "BOWLINE_EMBEDDED_TEST_FOLDER"
	fileVariable   = "BOWLINE_EMBEDDED_TEST_FILE"
)

// playNode is a node whose program uses an exclusive server, and that a test talks to over its
// standard streams. It does not return if this process is one.
func playNode(guard *guardian.Guardian) {
	name := os.Getenv(nodeVariable)
	if name == "" {
		return
	}
	if err := runNode(guard, name); err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runNode(guard *guardian.Guardian, name string) (err error) {
	ctx, log := context.Background(), slog.New(slog.DiscardHandler)
	engine, err := Join(ctx, Options{Folder: os.Getenv(folderVariable), Cluster: "test", Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	joining, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	node, err := cluster.Join(joining, engine, cluster.Options{
		Cluster: "test", Node: name, Key: bytes.Repeat([]byte{1}, cluster.KeySize), Guardian: guard, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close(ctx)) }()
	o := mcpclient.Options{}
	o.Conn.Log, o.Conn.RequestTimeout = log, 2*time.Minute
	upstream := node.Upstream("locked", locked.Command(os.Getenv(fileVariable)), cluster.UpstreamOptions{})
	session, err := mcpclient.New(protocol.Implementation{Name: name, Version: "1"}, o).Start(ctx, "locked", upstream)
	if err != nil {
		return err
	}
	defer session.Stop()
	so := server.Options{}
	so.Conn.Log = log
	s := server.New(protocol.Implementation{Name: name, Version: "1"}, so)
	server.AddTool(s, protocol.Tool{Name: "who"}, func(ctx context.Context, in locked.Mark) (string, error) {
		session := session.With(mcpclient.CallOptions{WaitForReady: true, Retries: 1000, Repeatable: true})
		return mcpclient.Call[string](ctx, session, "who", in)
	})
	server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in locked.Mark) (string, error) {
		_, err := mcpclient.Call[string](ctx, session, "wait", in)
		var call *conn.CallError
		if errors.As(err, &call) {
			return call.Cause.String() + ", " + call.Delivery.String(), nil
		}
		return fmt.Sprint(err), nil
	})
	server.AddTool(s, protocol.Tool{Name: "holds"}, func(context.Context, locked.Mark) (bool, error) {
		return slices.Contains(node.Report().Exclusive, "locked"), nil
	})
	server.AddTool(s, protocol.Tool{Name: "messages"}, func(context.Context, locked.Mark) (uint64, error) {
		sent, _ := engine.Messages()
		return sent, nil
	})
	server.AddTool(s, protocol.Tool{Name: "drain"}, func(ctx context.Context, _ locked.Mark) (string, error) {
		return "", node.Drain(ctx)
	})
	return s.Serve(ctx, &stdio.Server{})
}

// processes are the nodes of a test.
type processes struct {
	t     *testing.T
	file  string
	nodes map[string]*processNode
}

type processNode struct {
	session *mcpclient.Session
	pid     int
}

// startNodes starts nodes that share the server of NATS in this process.
func startNodes(t *testing.T, names ...string) *processes {
	t.Helper()
	folder, log := testenv.Dir(t), slog.New(slog.DiscardHandler)
	p := &processes{t, folder + "/file", map[string]*processNode{}}
	if err := os.WriteFile(p.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	engine, err := Join(t.Context(), Options{Folder: folder + "/nats", Cluster: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names {
		n := new(processNode)
		command := &stdio.Command{
			Path: os.Args[0], Stderr: os.Stderr, Started: func(pid int) { n.pid = pid },
			Env: []string{
				"GORACE=atexit_sleep_ms=0", nodeVariable + "=" + name, folderVariable + "=" + folder + "/nats", fileVariable + "=" + p.file,
			},
		}
		o := mcpclient.Options{FailFast: true}
		o.Conn.Log, o.Conn.Liveness, o.Conn.RequestTimeout = log, -1, 2*time.Minute // it is stopped for a while
		n.session, err = mcpclient.New(protocol.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), command)
		if err != nil {
			t.Fatalf("node %s: %v", name, err)
		}
		t.Cleanup(func() {
			n.session.Stop()
			<-n.session.Conn().Done()
		})
		p.nodes[name] = n
	}
	return p
}

// who returns which process serves the calls of a node, within the time.
func (p *processes) who(node string, within time.Duration) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), within)
	defer cancel()
	pid, err := mcpclient.Call[string](ctx, p.nodes[node].session, "who", locked.Mark{Text: "who"})
	if err != nil {
		p.t.Fatalf("node %s does not reach the server within %v: %v", node, within, err)
	}
	return pid
}

// agree checks that all nodes reach one process, which is not the one before.
func (p *processes) agree(before string, within time.Duration) (pid string) {
	p.t.Helper()
	for node := range p.nodes {
		got := p.who(node, within)
		if got == before || pid != "" && got != pid {
			p.t.Fatalf("node %s reaches process %s; the others reach %q, and before it was %q", node, got, pid, before)
		}
		pid = got
	}
	return pid
}

// holder returns the node on which the server runs.
func (p *processes) holder() string {
	p.t.Helper()
	for name, n := range p.nodes {
		if holds, err := mcpclient.Call[bool](p.t.Context(), n.session, "holds", locked.Mark{}); err != nil {
			p.t.Fatal(err)
		} else if holds {
			return name
		}
	}
	p.t.Fatal("the server runs on no node")
	return ""
}

// callInFlight makes calls from all nodes but one, which end as lost and perhaps executed. It
// returns when all have reached the server.
func (p *processes) callInFlight(n int, but string) *sync.WaitGroup {
	p.t.Helper()
	calls, began := new(sync.WaitGroup), p.marks()
	for name, node := range p.nodes {
		for i := range n {
			if name == but {
				continue
			}
			began++
			calls.Go(func() {
				text := fmt.Sprint(but, " ", name, i)
				got, err := mcpclient.Call[string](p.t.Context(), node.session, "wait", locked.Mark{Text: text})
				if got != "link lost, unknown" || err != nil {
					p.t.Errorf("call %s in flight ended with %q, %v, want that the link was lost and the delivery is unknown", text, got, err)
				}
			})
		}
	}
	for p.marks() < began {
		p.who(but, startTime)
	}
	return calls
}

// marks returns how many different calls the server has executed.
func (p *processes) marks() int {
	p.t.Helper()
	marks, err := locked.Read(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	return len(marks)
}

const (
	// startTime is how long the server may take to start on a busy machine.
	startTime = 30 * time.Second

	leaseTTL = 20 * time.Second
)

// When the node of an exclusive server is killed, its server ends with all that it has started, and
// another node runs it when the claim has expired. None of its calls is executed twice, and those
// of a cluster in which nothing happens send NATS nothing.
//
// Guarantees: G-0079.6, G-0079.7, G-0079.8
func TestAnExclusiveServerOfAKilledNode(t *testing.T) {
	t.Parallel()
	p := startNodes(t, "a", "b", "c")
	pid := p.agree("", startTime)
	p.mustNotAskNATS()
	killed := p.holder()
	calls := p.callInFlight(10, killed)
	if err := syscall.Kill(p.nodes[killed].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	delete(p.nodes, killed)
	if err := locked.AwaitFree(p.file, startTime); err != nil {
		t.Errorf("the server runs on after its node was killed: %v", err)
	}
	calls.Wait()
	p.agree(pid, leaseTTL+startTime)
	t.Logf("another node answers after %v", time.Since(began))
	p.mustNotHaveExecutedTwice()
}

// When the node of an exclusive server is stopped for 30 s, another one runs the server, and the
// first finds it there when it goes on. A drain moves it at once. It never runs twice, and none of
// its calls is executed twice.
//
// Guarantees: G-0079.6, G-0079.7, G-0079.8
func TestAnExclusiveServerOfAStoppedNode(t *testing.T) {
	t.Parallel()
	p := startNodes(t, "a", "b", "c")
	pid := p.agree("", startTime)
	stopped := p.holder()
	calls := p.callInFlight(10, stopped)
	began := time.Now()
	node := p.nodes[stopped]
	if err := syscall.Kill(node.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	delete(p.nodes, stopped)
	calls.Wait()
	pid = p.agree(pid, leaseTTL+startTime)
	t.Logf("stopped: another node answers after %v", time.Since(began))
	pause := time.NewTimer(time.Until(began.Add(30 * time.Second)))
	<-pause.C
	if err := syscall.Kill(node.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.nodes[stopped] = node
	if got := p.agree("", leaseTTL+startTime); got != pid {
		t.Errorf("the server has moved from %s to %s when the stopped node continued", pid, got)
	}

	drained := p.holder()
	began = time.Now()
	if _, err := mcpclient.Call[string](t.Context(), p.nodes[drained].session, "drain", locked.Mark{}); err != nil {
		t.Error(err)
	}
	p.agree(pid, startTime+time.Second)
	t.Logf("drained: another node answers after %v", time.Since(began))
	if p.holder() == drained {
		t.Error("the server runs on the node that was drained")
	}
	p.mustNotHaveExecutedTwice()
}

// mustNotAskNATS checks that calls send the engines of the nodes nothing. Meanwhile these renew
// their leases every 5 s.
func (p *processes) mustNotAskNATS() {
	p.t.Helper()
	const calls = 200
	before, began := p.messages(), time.Now()
	for range calls {
		for node := range p.nodes {
			p.who(node, startTime)
		}
	}
	renewals := (uint64(time.Since(began)/(5*time.Second)) + 1) * uint64(len(p.nodes)+1)
	if sent := p.messages() - before; sent > 2*renewals {
		p.t.Errorf("%d calls of each node cost %d messages, want at most the %d for leases", calls, sent, renewals)
	}
}

// messages returns how many messages the nodes have sent to NATS.
func (p *processes) messages() (all uint64) {
	p.t.Helper()
	for _, n := range p.nodes {
		sent, err := mcpclient.Call[uint64](p.t.Context(), n.session, "messages", locked.Mark{})
		if err != nil {
			p.t.Fatal(err)
		}
		all += sent
	}
	return all
}

func (p *processes) mustNotHaveExecutedTwice() {
	p.t.Helper()
	marks, err := locked.Read(p.file)
	if err != nil {
		p.t.Error(err)
	}
	for text, times := range marks {
		if !strings.HasPrefix(text, "who") && times > 1 {
			p.t.Errorf("call %q was executed %d times", text, times)
		}
	}
}
