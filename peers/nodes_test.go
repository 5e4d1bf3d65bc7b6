//go:build npm

package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/tools/nodes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// TestClientsSurviveTheirNode checks that clients of other SDKs keep their session when its node
// is killed, and while all nodes are restarted one after the other. A balancer sends each
// request to the next node.
//
// A call that was under way at the killed node may fail. The next ones must succeed in the same
// session, without another initialize. A node that ends in good order refuses calls for a moment.
func TestClientsSurviveTheirNode(t *testing.T) {
	built := programs(t)
	full := filepath.Join(t.TempDir(), "bowline.exe")
	if err := build("..", full, "./cmd/bowline/full/bowline"); err != nil {
		t.Fatal(err)
	}
	peers, err := Peers(built)
	if err != nil {
		t.Fatal(err)
	}
	all := startNodes(t, full)
	for _, peer := range peers {
		if peer.Role != ClientRole || peer.Transport != HTTP {
			continue
		}
		// One at a time: all of them lose the same nodes.
		t.Run(peer.Name, func(t *testing.T) { survivesItsNode(t, peer, all) })
	}
}

func survivesItsNode(t *testing.T, peer Peer, all *nodes.Nodes) {
	front := newFront(t, all.URL())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	session, err := peer.Connect(ctx, Endpoint{URL: front.url}, protocol.LatestLegacy)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(ctx))
	call := func() error {
		result, err := session.CallTool(ctx, peer.Echo)
		if err == nil && (result.IsError || result.Text != peer.Answer) {
			err = fmt.Errorf("the answer is %+v", *result)
		}
		return err
	}
	for range 6 {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	owner := numberOf(t, front.session())
	if err := all.Kill(owner); err != nil {
		t.Fatal(err)
	}
	// recovers calls until a call succeeds.
	recovers := func(after string) (failed int) {
		since := time.Now()
		err := call()
		for ; err != nil && failed < 1000 && ctx.Err() == nil; err = call() {
			t.Logf("%s, after %v: %v", after, time.Since(since).Round(time.Millisecond), err)
			failed++
		}
		if err != nil {
			t.Fatalf("%s, no call has succeeded: %v", after, err)
		}
		t.Logf("%s, %d calls have failed, and one has succeeded after %v", after, failed, time.Since(since).Round(time.Millisecond))
		return failed
	}
	if failed := recovers("killed"); failed > 1 {
		t.Errorf("%d calls failed after its node was killed, want at most the one that was under way", failed)
	}
	if err := all.StartNode(ctx, owner); err != nil {
		t.Fatal(err)
	}
	for node := range 3 {
		if err := all.Signal(node, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		recovers("while a node ends")
		if err := all.Wait(node); err != nil {
			t.Errorf("a node that was interrupted: %v", err)
		}
		recovers("without a node")
		if err := all.StartNode(ctx, node); err != nil {
			t.Fatal(err)
		}
		recovers("with the node again")
	}
	if sent, used := front.counts(); sent != 1 || used != 1 {
		t.Errorf("%d initialize requests and %d sessions, want one of each", sent, used)
	}
}

// startNodes starts three nodes of a cluster on this machine.
func startNodes(t *testing.T, bowline string) *nodes.Nodes {
	t.Helper()
	state := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	all, err := nodes.Start(ctx, nodes.Options{
		Log: testLog{t},
		Command: func(node int) (*exec.Cmd, error) {
			command := exec.Command(bowline, "serve", "--http", "127.0.0.1:0", "--cluster", "peers", "--node", fmt.Sprintf("n%d", node))
			command.Env = append(os.Environ(), "XDG_CONFIG_HOME="+state)
			return command, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := all.Close(); err != nil {
			t.Error(err)
		}
	})
	return all
}

type testLog struct{ testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.Logf("%s", line)
	return len(line), nil
}

// numberOf returns the number of the node that a session id names.
func numberOf(t *testing.T, session string) (node int) {
	t.Helper()
	if _, err := fmt.Sscanf(streamable.NodeOf(session), "n%d", &node); err != nil {
		t.Fatalf("session %q: %v", session, err)
	}
	return node
}

// A front is in front of the balancer, and notes what the client sends.
type front struct {
	url string

	mu          sync.Mutex
	initializes int
	sessions    map[string]bool
	last        string
}

func newFront(t *testing.T, to string) *front {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{sessions: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		FlushInterval: -1,
		Transport:     &http.Transport{DisableKeepAlives: true},
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has left
		}
		f.note(r.Header.Get("Mcp-Session-Id"), string(body))
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		site.CloseClientConnections()
		site.Close()
	})
	f.url = site.URL + target.Path
	return f
}

func (f *front) note(session, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(body, `"method":"initialize"`) {
		f.initializes++
	}
	if session != "" {
		f.sessions[session], f.last = true, session
	}
}

func (f *front) session() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *front) counts() (initializes, sessions int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.initializes, len(f.sessions)
}
