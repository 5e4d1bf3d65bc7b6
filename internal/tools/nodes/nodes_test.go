package nodes_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/tools/nodes"
)

const role = "BOWLINE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "node" {
		serveAsNode()
	}
	testenv.Once()
	goleak.VerifyTestMain(m)
}

// serveAsNode serves the id of its process until it is killed.
func serveAsNode() {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s %s", os.Getpid(), r.Host, body)
	}))
	fmt.Fprintf(os.Stderr, "bowline: serving %s/mcp\n", site.URL)
	select {}
}

func start(t *testing.T) *nodes.Nodes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := nodes.Start(ctx, nodes.Options{Command: func(int) (*exec.Cmd, error) {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), role+"=node")
		return command, nil
	}})
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

func post(t *testing.T, at string) (status int, body string) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.Post(at, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// Each request goes to the next node with its host and body; a node that was killed is left out, and one
// that is started again takes part.
func TestRequestsGoToTheNextNode(t *testing.T) {
	all := start(t)
	host, _ := url.Parse(all.URL())
	seen := func(requests int) map[string]int {
		by := map[string]int{}
		for range requests {
			status, body := post(t, all.URL())
			pid, rest, _ := strings.Cut(body, " ")
			if status != http.StatusOK || rest != host.Host+" hello" {
				t.Fatalf("status %d: %q", status, body)
			}
			by[pid]++
		}
		return by
	}
	if by := seen(9); len(by) != 3 {
		t.Errorf("the requests went to %v", by)
	}
	if err := all.Kill(1); err != nil {
		t.Fatal(err)
	}
	if by := seen(12); len(by) != 2 {
		t.Errorf("with one node less the requests went to %v", by)
	}
	if err := all.StartNode(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if by := seen(9); len(by) != 3 {
		t.Errorf("with the node again the requests went to %v", by)
	}
}

// What is not a refused connection reaches the client.
func TestOtherFailuresAreNotRepeated(t *testing.T) {
	var requests atomic.Int32
	breaks := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer breaks.Close()
	at, err := url.Parse(breaks.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := nodes.NewBalancer(3)
	for i := range 3 {
		b.Set(i, at)
	}
	site := httptest.NewServer(b)
	defer site.Close()
	if status, body := post(t, site.URL); status != http.StatusBadGateway || requests.Load() != 1 {
		t.Errorf("status %d after %d requests: %s", status, requests.Load(), body)
	}
	b.Set(0, nil)
	b.Set(1, nil)
	b.Set(2, nil)
	if status, body := post(t, site.URL); status != http.StatusBadGateway || !strings.Contains(body, "no node") {
		t.Errorf("without nodes, status %d: %s", status, body)
	}
}

// A node that ends before it serves is an error that shows what it said.
func TestNodeThatDoesNotServe(t *testing.T) {
	_, err := nodes.Start(t.Context(), nodes.Options{Command: func(int) (*exec.Cmd, error) {
		return exec.Command("sh", "-c", "echo no such flag >&2; exit 2"), nil
	}})
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "status 2") {
		t.Errorf("got %v", err)
	}
}
