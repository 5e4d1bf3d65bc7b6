//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// inTurns sends each request to the next of some nodes.
type inTurns struct {
	nodes []string // their URLs

	mu   sync.Mutex
	sent []string // the methods of requests, by order
}

func (s *inTurns) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	at, err := url.Parse(s.nodes[len(s.sent)%len(s.nodes)])
	s.sent = append(s.sent, r.Header.Get("Mcp-Method"))
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL = at
	return http.DefaultTransport.RoundTrip(r)
}

// A question that a server asks behind one gateway of a cluster is answered at another one: its call waits where it is. A gateway that is drained
// gives up the servers of which there is one: they run at another one, and never at both.
//
// Guarantees: G-0104.1, G-0104.2
func TestWhatIsOpenGoesOnAtAnotherGateway(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	name, pids := "o"+strings.ReplaceAll(time.Now().Format("150405.000000"), ".", ""), filepath.Join(t.TempDir(), "pids")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"asker": map[string]any{"command": self, "env": map[string]string{role: "asker"}},
		"one": map[string]any{
			"command": "sh", "args": []string{"-c", `echo $$ >>"$PIDS"; exec "$0" serve --stdio`, self}, "env": map[string]string{role: "command", "PIDS": pids},
			"bowline": map[string]string{"instances": "one", "start": "demand"},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := startAt(t, text, "--admin", "off", "--cluster", name, "--node", "a")
	b := startAt(t, text, "--admin", "off", "--cluster", name, "--node", "b")

	nodes := &inTurns{nodes: []string{a.url, b.url}}
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: protocol.Latest,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(map[string]any{"size": "L"})
		},
	})
	session, err := c.Connect(t.Context(), &streamable.Client{URL: a.url, HTTP: &http.Client{Transport: nodes}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(t.Context()))
	for range 2 { // the first call begins at the one node, and the second at the other
		answer, err := client.Call[string](t.Context(), session, "asker__ask", struct{}{})
		if err != nil || answer != "the size is L" {
			t.Errorf("the tool that asks: %q, %v", answer, err)
		}
		if _, err := client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hi"}); err != nil {
			t.Error(err)
		}
	}
	nodes.mu.Lock()
	sent := slices.Clone(nodes.sent)
	nodes.mu.Unlock()
	if calls := len(slices.DeleteFunc(sent, func(method string) bool { return method != protocol.MethodCallTool })); calls != 6 {
		t.Errorf("%d requests were calls, want each question answered by one of its own: %q", calls, nodes.sent)
	}

	if said, err := bowline(t, "drain", "a", "--cluster", name).CombinedOutput(); err != nil {
		t.Errorf("drain: %v: %s", err, said)
	}
	if status, rest := a.ended(); status != 0 {
		t.Errorf("the drained gateway has ended with status %d: %s", status, rest)
	}
	_, header, _ := ask(t, b.url, "", initialize)
	if answer := b.echo(header.Get("Mcp-Session-Id"), "one__echo"); !strings.Contains(answer, `"text":"hi"`) {
		t.Errorf("the server of which there is one, after its node was drained: %s", answer)
	}
	all := pidsOf(t, pids)
	if len(all) != 2 || runtime.GOOS == "linux" && syscall.Kill(all[0], 0) == nil {
		t.Errorf("the server has run as %d, and should have ended with its node, and run at the other one", all)
	}
}
