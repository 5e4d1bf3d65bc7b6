//go:build npm

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var (
	chaosDuration = flag.Duration("chaos", 40*time.Second, "how long the servers of a gateway are killed and stalled")
	chaosPace     = flag.Duration("pace", 50*time.Millisecond, "how long a client waits between two calls meanwhile, in the mean, and a fifth of the time between two kills")
)

const (
	chaosServers = 20
	mostCalls    = 4 << 20
)

// A chaos is a gateway over processes, the clients that call it, and the books of both.
type chaos struct {
	t        *testing.T
	gateway  *gateway.Gateway
	url      string
	self     string // this program, which is also that of the servers
	folder   string
	children map[string]*fleet.Process

	calls    atomic.Int64
	outcomes []outcome // by the number of the call

	mu     sync.Mutex
	asked  ledger.Counts // how the calls of the gateway to servers have ended
	served int           // how many calls of clients the gateway has ended
}

// An outcome is what the client of a call has got.
type outcome byte

const (
	executedOnce outcome = iota + 1 // the server has answered
	notSent                         // the gateway says that no server has executed it
	uncertain                       // it says that one may have
	otherwise
)

// In front of 20 servers, of which some are killed, stopped and taken out of the file all the time, each call of 50 clients of four SDKs
// ends once, with what the server has done or with the truth about that; no tool vanishes from a list; and nothing is left or grows.
//
// Guarantees: G-0096.2
func TestChaosBehindAGateway(t *testing.T) {
	c := newChaos(t)
	ctx, cancel := context.WithTimeout(t.Context(), *chaosDuration+3*time.Minute)
	defer cancel()
	c.apply(0)
	clients := c.connect(ctx)
	heaps := c.run(ctx, clients)
	for _, s := range clients {
		if err := s.Close(ctx); err != nil {
			t.Logf("the end of a client: %v", err) // not of Bowline's making
		}
	}
	if err := c.gateway.Close(ctx); err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
	c.balance()
	if first, last := heaps[0], heaps[1]; last > first+first/4+8<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", first, last)
	}
	t.Logf("heap %.1f MB, then %.1f MB", float64(heaps[0])/1e6, float64(heaps[1])/1e6)
}

func newChaos(t *testing.T) *chaos {
	folder := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{t: t, folder: folder, self: self, children: make(map[string]*fleet.Process), outcomes: make([]outcome, mostCalls), asked: make(ledger.Counts)}
	if err := typeScriptClientV2.install(); err != nil {
		t.Fatal(err)
	}
	for i := range chaosServers {
		c.children[nameOfServer(i)] = new(fleet.Process)
	}
	c.children["extra"] = new(fleet.Process)
	quiet := slog.New(slog.DiscardHandler) // servers are killed all the time
	c.gateway = gateway.New(gateway.Options{
		Client: client.Options{Conn: conn.Tuning{
			BackoffMin: 100 * time.Millisecond, BackoffMax: 2 * time.Second, ProvenAfter: time.Second, Liveness: 3 * time.Second,
			Log: quiet, Hooks: telemetry.Hooks{RequestStopped: c.onAsked},
		}},
		Server: server.Options{Conn: conn.Tuning{Log: quiet}, Audit: c.onServed},
		Each: func(s *mcpjson.Server, _ *client.Options) {
			command := s.Transport.(*stdio.Command)
			noted := command.Started
			command.Started = func(pid int) {
				noted(pid)
				c.children[s.Name].Started(pid)
			}
		},
	})
	events := &streamable.MemoryStore{MaxAge: 10 * time.Second} // and not an hour: what it keeps is no leak
	h := streamable.NewHandler(c.gateway.Server(), streamable.HandlerOptions{EventStore: events})
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		c.gateway.Close(context.Background())
		h.Close(0)
		web.Close()
	})
	c.url = web.URL
	return c
}

func nameOfServer(i int) string { return fmt.Sprintf("s%02d", i) }

// apply applies the file that is the n-th: every other one has one server more, and another variable for the last one, which is
// started again by that.
func (c *chaos) apply(n int) {
	entries := make(map[string]any)
	for name := range c.children {
		if name == "extra" && n%2 == 0 {
			continue
		}
		environment := map[string]string{executedVariable: filepath.Join(c.folder, "executed")}
		if name == nameOfServer(chaosServers-1) {
			environment["N"] = strconv.Itoa(n)
		}
		entries[name] = map[string]any{"command": c.self, "env": environment}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": entries})
	path := filepath.Join(c.folder, "mcp.json")
	if err = errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		c.t.Fatal(err)
	}
	file, err := mcpjson.Load(path)
	if err == nil {
		_, err = c.gateway.Apply(c.t.Context(), file)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) { // a server that is stopped cannot finish its calls in time
		c.t.Errorf("file %d: %v", n, err)
	}
}

// connect connects the clients.
func (c *chaos) connect(ctx context.Context) (all []Session) {
	for _, of := range []struct {
		connect  Connect
		revision string
		n        int
	}{
		{connectBowline, protocol.LatestLegacy, 10}, {connectBowline, protocol.Latest, 10},
		{connectGoSDK, protocol.LatestLegacy, 13}, {connectMCPGo, protocol.LatestLegacy, 13},
		{connectTypeScript(typeScriptClientV2), protocol.LatestLegacy, 2}, {connectTypeScript(typeScriptClientV2), protocol.Latest, 2},
	} {
		for range of.n {
			s, err := of.connect(ctx, Endpoint{URL: c.url}, of.revision)
			if err != nil {
				c.t.Fatal(err)
			}
			all = append(all, s)
		}
	}
	return all
}

// run calls, kills and stalls until the time is over. It returns the size of the heap after a third of the time, and at the end.
func (c *chaos) run(ctx context.Context, clients []Session) (heaps [2]uint64) {
	load := fleet.StartLoad(len(clients), func(i int) bool {
		c.call(ctx, clients[i])
		return wait.Sleep(ctx, time.Duration(rand.ExpFloat64()*float64(*chaosPace))) == nil
	})
	stop, done := context.WithTimeout(ctx, *chaosDuration)
	var others sync.WaitGroup
	for _, fault := range []struct {
		every time.Duration
		do    func(n int)
	}{
		{*chaosPace, func(int) { c.list(ctx, clients[0]) }},
		{5 * *chaosPace, func(int) { c.children[nameOfServer(rand.IntN(chaosServers))].Kill() }},
		{2 * time.Second, func(int) { c.stall(stop, time.Second) }},
		{11 * time.Second, func(int) { c.stall(stop, 8*time.Second) }}, // longer than the gateway waits for a sign of life
		{3 * time.Second, c.apply},
	} {
		others.Go(func() {
			for n := 1; wait.Sleep(stop, fault.every) == nil; n++ {
				fault.do(n)
			}
		})
	}
	if wait.Sleep(stop, *chaosDuration/3) == nil {
		heaps[0] = heap()
	}
	others.Wait()
	heaps[1] = heap()
	done()
	load.End()
	return heaps
}

func heap() uint64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}

// stall stops a process for some time.
func (c *chaos) stall(ctx context.Context, how time.Duration) {
	of := c.children[nameOfServer(rand.IntN(chaosServers))]
	if of.Stall() == nil {
		_ = wait.Sleep(ctx, how)
		_ = of.Resume() // unless the gateway has killed it in the meantime
	}
}

// call makes a call of any server, and notes what became of it.
func (c *chaos) call(ctx context.Context, s Session) {
	n := c.calls.Add(1)
	id := strconv.FormatInt(n, 10)
	tool := nameOfServer(rand.IntN(chaosServers)) + "__" + marks.Tool
	result, err := s.CallTool(ctx, Call{Tool: tool, Arguments: map[string]any{"id": id, "wait": rand.IntN(20)}})
	switch {
	case err != nil:
		c.outcomes[n] = otherwise
		c.t.Errorf("call %d with %T: %v", n, s, err)
	case !result.IsError && result.Text == id:
		c.outcomes[n] = executedOnce
	case result.IsError && strings.Contains(result.Text, "It was not executed"):
		c.outcomes[n] = notSent
	case result.IsError && strings.Contains(result.Text, "It may have been executed"):
		c.outcomes[n] = uncertain
	default:
		c.outcomes[n] = otherwise
		c.t.Errorf("call %d: %+v", n, result)
	}
}

// list checks that the tools of all servers are listed, those that are away as well.
func (c *chaos) list(ctx context.Context, s Session) {
	names, _, err := s.ListTools(ctx, "")
	if err != nil {
		c.t.Errorf("the list: %v", err)
		return
	}
	listed := strings.Join(names, " ") + " "
	for i := range chaosServers {
		if name := nameOfServer(i) + "__" + marks.Tool + " "; !strings.Contains(listed, name) {
			c.t.Errorf("%sis not in the list %q", name, names)
		}
	}
}

// onAsked counts the calls of the gateway to servers.
func (c *chaos) onAsked(_ context.Context, stopped telemetry.RequestStopped) {
	if stopped.Method != protocol.MethodCallTool {
		return
	}
	how, err := ledger.OutcomeOf(stopped.Err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[how]++; err != nil {
		c.t.Error(err)
	}
}

// onServed counts the calls that the gateway has ended.
func (c *chaos) onServed(_ context.Context, r server.Record) {
	if r.Method == protocol.MethodCallTool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.served++
	}
}

// balance compares what clients have got, the gateway has asked, and servers have executed.
func (c *chaos) balance() {
	executed, err := marks.Read(filepath.Join(c.folder, "executed"))
	if err != nil {
		c.t.Fatal(err)
	}
	all := int(c.calls.Load())
	var count [otherwise + 1]int
	for n := 1; n <= all; n++ {
		how, times := c.outcomes[n], executed[strconv.Itoa(n)]
		count[how]++
		if times > 1 || how == executedOnce && times != 1 || how == notSent && times != 0 {
			c.t.Errorf("call %d (%d) was executed %d times", n, how, times)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served != all || int(c.asked[ledger.Answered()]) != count[executedOnce] {
		c.t.Errorf("clients made %d calls, and %d were answered; the gateway has served %d, and servers have answered %d",
			all, count[executedOnce], c.served, c.asked[ledger.Answered()])
	}
	started, alive := 0, 0
	for _, child := range c.children {
		alive += child.Alive()
		n, err := child.Close()
		if started += n; err != nil {
			c.t.Error(err)
		}
	}
	if alive > 0 {
		c.t.Errorf("%d processes are left", alive)
	}
	c.t.Logf("%d calls: %d answered, %d not executed, %d perhaps, %d otherwise; %d executed; %d processes were started",
		all, count[executedOnce], count[notSent], count[uncertain], count[otherwise], len(executed), started)
	c.t.Logf("what the gateway has asked of servers:\n%v", c.asked)
}
