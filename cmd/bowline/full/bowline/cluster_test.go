package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// ask sends a message of a session to a node.
func ask(t *testing.T, url, session, message string) (status int, header http.Header, body string) {
	t.Helper()
	more := http.Header{}
	if session != "" {
		more.Set("Mcp-Session-Id", session)
	}
	return askWith(t, url, more, message)
}

// askWith sends a message with more headers to a node.
func askWith(t *testing.T, url string, more http.Header, message string) (status int, header http.Header, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), hangGuard, errors.New("the node does not answer"))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = more
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	echo        = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}}`
)

// Two processes with the same --cluster need nothing else: each serves the sessions of the other,
// and goes on with them when the other is killed or drained, also if that one ran the server of NATS.
func TestNodesOfOneMachine(t *testing.T) {
	name := "t" + strings.ToLower(time.Now().Format("150405.000000"))
	name = strings.ReplaceAll(name, ".", "")
	a, _, killA, endedA := serving(t, "--cluster", name, "--node", "a")
	b, _, _, endedB := serving(t, "--cluster", name, "--node", "b")
	_, header, body := ask(t, a, "", initialize)
	session := header.Get("Mcp-Session-Id")
	if !strings.HasPrefix(session, "a.") {
		t.Fatalf("the session is %q: %s", session, body)
	}
	if status, _, body := ask(t, b, session, initialized); status != http.StatusAccepted {
		t.Fatalf("initialized at the other node: %d %s", status, body)
	}
	works := func(url, when string) {
		t.Helper()
		if status, _, body := ask(t, url, session, echo); status != http.StatusOK || !strings.Contains(body, `"hi"`) {
			t.Errorf("%s: %d %s", when, status, body)
		}
	}
	works(b, "at the other node")
	if said, err := bowline(t, "nodes", "--cluster", name, "--json").Output(); err != nil {
		t.Errorf("nodes: %v", err)
	} else {
		var reports []cluster.Report
		if err := json.Unmarshal(said, &reports); err != nil || len(reports) != 2 || reports[0].Name != "a" || reports[0].Sessions != 1 || reports[1].State != cluster.Ready {
			t.Errorf("nodes has printed %s: %v", said, err)
		}
	}
	killA() // it runs the server of NATS
	if status, _ := endedA(); status == 0 {
		t.Error("a process that was killed has ended with status 0")
	}
	// A call may be sent on a connection whose end the other node has not noticed yet.
	if status, _, body := ask(t, b, session, echo); status != http.StatusOK && !strings.Contains(body, "unknown whether it has executed") {
		t.Errorf("the first call after its node was killed: %d %s", status, body)
	}
	works(b, "after its node was killed")
	c, _, _, _ := serving(t, "--cluster", name, "--node", "c")
	if said, err := bowline(t, "drain", "b", "--cluster", name).CombinedOutput(); err != nil {
		t.Errorf("drain: %v: %s", err, said)
	}
	if status, rest := endedB(); status != 0 {
		t.Errorf("the drained node has ended with status %d: %s", status, rest)
	}
	works(c, "after its node was drained")
	folder, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(folder, "bowline", "clusters", name), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "clientInfo") || strings.Contains(string(text), session) {
			t.Errorf("%s can be read without the key", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWrongFlagsOfACluster(t *testing.T) {
	key, none := newKey(t), filepath.Join(t.TempDir(), "none")
	serve := func(more ...string) []string {
		return append([]string{"serve", "--http", "127.0.0.1:0", "--cluster", "x"}, more...)
	}
	seeds := func(seeds string, more ...string) []string {
		return serve(append([]string{"--cluster-key", key, "--cluster-listen", "127.0.0.1:1", "--seed", seeds}, more...)...)
	}
	const three = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
	for want, args := range map[string][]string{
		"need one key":                   serve("--nats", "nats://127.0.0.1:1"),
		"--nats-creds needs --nats":      serve("--nats-creds", "f"),
		"no key of 64 hexadecimal":       serve("--cluster-key", os.DevNull),
		"1 to 64 letters":                {"serve", "--http", "127.0.0.1:0", "--cluster", "a b"},
		"no such file":                   {"nodes", "--cluster", "x", "--cluster-key", none + "/key"},
		"--seed needs --cluster-listen":  serve("--cluster-key", key, "--seed", three),
		"--cluster-listen needs --seed":  serve("--cluster-key", key, "--cluster-listen", ":1"),
		"by which they know each other":  serve("--cluster-listen", "127.0.0.1:1", "--seed", three),
		"Two buy nothing":                seeds("127.0.0.1:1,127.0.0.1:2"),
		`"b" is no address`:              seeds("127.0.0.1:1,b,c:3"),
		`"b:x" is no address`:            seeds("127.0.0.1:1,b:x,c:3"),
		`"a/b:1" is no address`:          seeds("127.0.0.1:1,a/b:1,c:3"),
		`"b:0" is no address`:            seeds("127.0.0.1:1,b:0,c:3"),
		"names b:2 twice":                seeds("127.0.0.1:1,b:2,b:2"),
		"exclude each other":             seeds(three, "--nats", "nats://127.0.0.1:1"),
		"name its host with --advertise": seeds("203.0.113.1:1,203.0.113.2:1,203.0.113.3:1"),
		`--cluster-listen: "x"`:          serve("--cluster-key", key, "--cluster-listen", "x", "--seed", three),
		"is not known on this machine":   {"nodes", "--cluster", "unknown"},
		"leave --stdio out":              {"up", "f", "--stdio", "--cluster", "x"},
		"name the cluster with":          {"up", "f", "--node", "x"},
	} {
		said, err := bowline(t, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(said), want) || err.Error() != "exit status 2" {
			t.Errorf("%q: %v: %s; want %q", args, err, said, want)
		}
	}
}

// What is wrong with --nats, --hop and --advertise is said before the cluster is joined.
func TestWrongFlagsOfANode(t *testing.T) {
	t.Setenv("BOWLINE_NATS_PASSWORD", "")
	key, none := newKey(t), filepath.Join(t.TempDir(), "none")
	serve := func(more ...string) []string {
		return append([]string{"serve", "--http", "127.0.0.1:0", "--cluster", "x", "--cluster-key", key}, more...)
	}
	for want, args := range map[string][]string{
		"is a variable empty":              {"serve", "--http", "127.0.0.1:0", "--cluster", ""},
		"is like tls://":                   serve("--nats", "http://127.0.0.1:1"),
		"everybody on this machine":        serve("--nats", "nats://u:p@127.0.0.1:1"),
		"into BOWLINE_NATS_PASSWORD":       serve("--nats", "nats://u@127.0.0.1:1"),
		"--nats-creds: open " + none:       serve("--nats", "nats://127.0.0.1:1", "--nats-creds", none),
		`--hop: "nonsense" is no address`:  serve("--hop", "nonsense"),
		`--advertise: "a b" is no host`:    serve("--advertise", "a b"),
		"no cluster without NATS servers":  {"nodes"},
		none + "/key: no such file":        {"cluster", "init", "--cluster-key", none + "/key"},
		"is a folder: name a file":         {"cluster", "init", "--cluster-key", filepath.Dir(key)},
		"exists already; the nodes of a r": {"cluster", "init", "--cluster-key", key},
	} {
		cmd := bowline(t, args...)
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+t.TempDir())
		said, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(said), want) || err.Error() != "exit status 2" {
			t.Errorf("%q: %v: %s; want %q", args, err, said, want)
		}
	}
}

// With a NATS server of the user's, a node keeps nothing on its machine, and errors say which flag
// is wrong.
func TestNodesWithANATSServer(t *testing.T) {
	url, key := permittedServer(t), newKey(t)
	flags := func(key string) []string {
		return []string{"--cluster", "prod", "--nats", url, "--cluster-key", key}
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	t.Setenv("XDG_CONFIG_HOME", "/dev/null/none")
	startServe(t, append(flags(key), "--node", "a")...).await()
	t.Setenv("XDG_CONFIG_HOME", config)
	if said, err := bowline(t, append([]string{"nodes"}, flags(key)...)...).Output(); err != nil || !strings.Contains(string(said), "ready") {
		t.Errorf("nodes: %v: %s", err, said)
	}
	other := newKey(t)
	for want, args := range map[string][]string{
		"--cluster-key or BOWLINE_CLUSTER_KEY": append([]string{"serve", "--http", "127.0.0.1:0", "--node", "b"}, flags(other)...),
		"have another key":                     append([]string{"nodes"}, flags(other)...),
		"give --nats and --cluster-key":        {"nodes", "--cluster", "prod", "--cluster-key", key},
	} {
		said, err := bowline(t, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(said), want) || err.Error() != "exit status 2" {
			t.Errorf("%q: %v: %s; want %q", args, err, said, want)
		}
	}
}

// Who only looks for a cluster does not make it.
func TestNodesOfAClusterThatIsNotThere(t *testing.T) {
	url, key := permittedServer(t), newKey(t)
	for range 2 {
		said, err := bowline(t, "nodes", "--cluster", "prod", "--nats", url, "--cluster-key", key).CombinedOutput()
		if err == nil || err.Error() != "exit status 2" || !strings.Contains(string(said), "no cluster prod has run there") {
			t.Fatalf("%v: %s", err, said)
		}
	}
}

// A node that is interrupted while NATS is away ends in good order, and says what it could not do.
func TestANodeEndsWithoutNATS(t *testing.T) {
	url, stop := stoppableServer(t)
	s := startServe(t, "--cluster", "prod", "--nats", url, "--cluster-key", newKey(t), "--node", "a").await()
	stop()
	s.awaitLine("degraded")
	s.interrupt()
	if status, rest := s.ended(); status != 0 || !strings.Contains(rest, "could not tell the others") {
		t.Errorf("it has ended with status %d: %s", status, rest)
	}
}
