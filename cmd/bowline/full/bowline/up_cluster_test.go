//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A gateway at a node of a cluster, of which each node is a process of its own.
type gatewayNode struct {
	*serve
	file  string
	calls int
}

// startGateway starts `bowline up` with a file of its own, as on a machine of its own. Both have a server "own"; of "one" the cluster has one, which
// appends its process id to a file.
func startGateway(t *testing.T, cluster, node, pids string) *gatewayNode {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry := func(instances string) map[string]any {
		return map[string]any{
			"command": "sh", "args": []string{"-c", `for p in $(cat "$PIDS" 2>/dev/null); do kill -0 $p 2>/dev/null && [ "$INSTANCES" = one ] && echo "twice:$p" >>"$PIDS"; done; echo $$ >>"$PIDS"; exec "$0" serve --stdio`, self},
			"env": map[string]string{role: "command", "PIDS": pids + "-" + instances, "INSTANCES": instances}, "bowline": map[string]string{"instances": instances, "start": "demand"},
		}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"own": entry("each"), "one": entry("one")}, "bowline": map[string]any{"audit": map[string]any{"file": "audit.jsonl"}}})
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, text, "--admin", "off", "--cluster", cluster, "--node", node)
}

// startAt starts `bowline up` with what is in a file.
func startAt(t *testing.T, text []byte, flags ...string) *gatewayNode {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &gatewayNode{file: path, serve: start(t, append([]string{"up", path, "--http", "127.0.0.1:0"}, flags...)...).await()}
}

// echo calls a tool in a session, until a deadline, and returns the last answer.
func (g *gatewayNode) echo(session, tool string) string {
	g.t.Helper()
	for until := time.Now().Add(30 * time.Second); ; {
		g.calls++
		status, _, body := ask(g.t, g.url, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"message":"hi"}}}`, g.calls+10, tool))
		if status == http.StatusOK && strings.Contains(body, `"text":"hi"`) || time.Now().After(until) {
			return fmt.Sprint(status, " ", body)
		}
	}
}

// awaitRecord waits until a line of the trail has some texts.
func (g *gatewayNode) awaitRecord(texts ...string) {
	g.t.Helper()
	for until := time.Now().Add(hangGuard); ; {
		all, err := os.ReadFile(filepath.Join(filepath.Dir(g.file), "audit.jsonl"))
		for line := range strings.Lines(string(all)) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return
			}
		}
		if err != nil || time.Now().After(until) {
			g.t.Fatalf("no record has %q: %s, %v", texts, all, err)
		}
	}
}

// pidsOf returns the processes of a server.
func pidsOf(t *testing.T, path string) (all []int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

// The log of a gateway's node has the level that the command was given, as that of the gateway has.
func TestLevelOfTheLogOfANode(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for level, want := range map[string]bool{"info": true, "warn": false} {
		node := startAt(t, []byte(`{"mcpServers":{}}`), "--admin", "off", "--cluster", "level-"+level, "--node", "a", "--log-level", level)
		if said := node.said.String(); strings.Contains(said, "level=INFO msg=\"the NATS server of the cluster runs in this process\"") != want {
			t.Errorf("at the level %s a line of the level INFO is expected: %v\n%s", level, want, said)
		}
	}
}

// Two gateways are nodes of a cluster: a session that begins at one goes on at the other, also when its node is killed, and a server of which there is one
// runs at one node, and at the other once that node is killed. Each node has its own of the others.
//
// Guarantees: G-0104.1, G-0104.2, G-0104.8
func TestGatewaysOfACluster(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	name, pids := "g"+strings.ReplaceAll(time.Now().Format("150405.000000"), ".", ""), filepath.Join(t.TempDir(), "pids")
	a, b := startGateway(t, name, "a", pids), startGateway(t, name, "b", pids)
	_, header, body := ask(t, a.url, "", initialize)
	session := header.Get("Mcp-Session-Id")
	if !strings.HasPrefix(session, "a.") {
		t.Fatalf("the session is %q: %s", session, body)
	}
	if status, _, body := ask(t, b.url, session, initialized); status != http.StatusAccepted {
		t.Fatalf("initialized at the other node: %d %s", status, body)
	}
	_, header, _ = ask(t, b.url, "", initialize)
	other := header.Get("Mcp-Session-Id") // begins at the other node
	for _, tool := range []string{"one__echo", "own__echo"} {
		for _, at := range []struct {
			node    *gatewayNode
			session string
		}{{a, session}, {b, session}, {b, other}, {a, other}} {
			if answer := at.node.echo(at.session, tool); !strings.Contains(answer, `"text":"hi"`) {
				t.Errorf("%s at %s: %s", tool, at.node.url, answer)
			}
		}
	}
	if all := pidsOf(t, pids+"-one"); len(all) != 1 {
		t.Errorf("the server of which there is one has run as %d", all)
	}
	if all := pidsOf(t, pids+"-each"); len(all) != 2 {
		t.Errorf("the others have run as %d, want one at each node", all)
	}
	if said, err := bowline(t, "ps", "--file", b.file, "--node", "a").CombinedOutput(); err != nil || !strings.HasPrefix(string(said), "NODE a (ready, ") || !strings.Contains(string(said), "\nown ") {
		t.Errorf("ps at b says of a: %s, %v", said, err)
	}
	if said, err := bowline(t, "ps", "--file", b.file, "--node", "all").CombinedOutput(); err != nil || !strings.Contains(string(said), "NODE a (ready") || !strings.Contains(string(said), "NODE b (this one)") {
		t.Errorf("ps of all says %s, %v", said, err)
	}
	if said, err := bowline(t, "ps", "--file", b.file, "--node", "c").CombinedOutput(); err == nil || !strings.Contains(string(said), `no node "c"`) {
		t.Errorf("ps of a node that is not there says %s, %v", said, err)
	}
	a.kill() // which runs the server, and that of NATS
	a.ended()
	for until := time.Now().Add(hangGuard); ; {
		said, err := bowline(t, "ps", "--file", b.file, "--node", "a").CombinedOutput()
		if err == nil && strings.HasPrefix(string(said), "NODE a (does not answer)") && strings.Contains(string(said), "\nown ") {
			break
		}
		if err != nil || time.Now().After(until) {
			t.Fatalf("of a node that was killed: %s, %v", said, err)
		}
	}
	for _, tool := range []string{"one__echo", "own__echo"} {
		if answer := b.echo(session, tool); !strings.Contains(answer, `"text":"hi"`) {
			t.Errorf("%s after its node was killed: %s", tool, answer)
		}
	}
	all := pidsOf(t, pids+"-one")
	if len(all) != 2 || runtime.GOOS == "linux" && syscall.Kill(all[0], 0) == nil {
		t.Errorf("the server has run as %d, and should have ended with its node, and run at the other one", all)
	}
}

// A server of which there is one moves to the node that a person names, by the command and through the door of any node, and is never there twice. Sessions go on, and the
// trails of the nodes say what was done. What cannot be is refused with what to do.
//
// Guarantees: G-0104.9, G-0099.20
func TestAServerIsMoved(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	name, pids := "m"+strings.ReplaceAll(time.Now().Format("150405.000000"), ".", ""), filepath.Join(t.TempDir(), "pids")
	nodes := map[string]*gatewayNode{}
	for _, node := range []string{"a", "b"} {
		nodes[node] = startGateway(t, name, node, pids)
	}
	_, header, _ := ask(t, nodes["a"].url, "", initialize)
	session := header.Get("Mcp-Session-Id")
	ask(t, nodes["a"].url, session, initialized)
	if answer := nodes["a"].echo(session, "one__echo"); !strings.Contains(answer, `"text":"hi"`) {
		t.Fatal(answer)
	}
	listed, err := bowline(t, "nodes", "--cluster", name, "--json").Output()
	var reports []struct {
		Name      string
		Exclusive []string
	}
	if err := errors.Join(err, json.Unmarshal(listed, &reports)); err != nil {
		t.Fatal(err)
	}
	from, to := "a", "b"
	for _, r := range reports {
		if r.Name == "b" && len(r.Exclusive) > 0 {
			from, to = "b", "a"
		}
	}
	for i := range 3 { // there, back, and there again
		said, err := bowline(t, "move", "one", to, "--cluster", name).CombinedOutput()
		if err != nil || !strings.Contains(string(said), "node "+to+" runs one now; what the server kept in its memory is lost") {
			t.Fatalf("move %d, to %s: %s, %v", i, to, said, err)
		}
		for _, node := range nodes {
			if answer := node.echo(session, "one__echo"); !strings.Contains(answer, `"text":"hi"`) {
				t.Errorf("after move %d: %s", i, answer)
			}
		}
		if all := pidsOf(t, pids+"-one"); len(all) != i+2 {
			t.Errorf("after move %d the server has run as %d", i, all)
		}
		from, to = to, from
	}
	for _, refused := range []struct{ server, node, want string }{
		{"one", "c", "the cluster has no such node; bowline nodes lists them"},
		{"own", to, `each node runs its own "own": only a server whose entry says "instances": "one" can be moved`},
		{"none", to, `the file has no "none"`},
	} {
		if said, err := bowline(t, "move", refused.server, refused.node, "--cluster", name).CombinedOutput(); err == nil || !strings.Contains(string(said), refused.want) {
			t.Errorf("moving %s to %s says %s, %v", refused.server, refused.node, said, err)
		}
	}
	for _, want := range []string{"last rotated: never\n", "last rotated: " + time.Now().UTC().Format("2006-")} {
		if said, err := bowline(t, "keys", "--cluster", name).CombinedOutput(); err != nil || !strings.HasPrefix(string(said), want) {
			t.Errorf("keys says %s, %v; want %q", said, err, want)
		}
		if said, err := bowline(t, "keys", "rotate", "--cluster", name).CombinedOutput(); err != nil || !strings.Contains(string(said), "the new keys are in use") {
			t.Errorf("keys rotate says %s, %v", said, err)
		}
	}
	host, err := os.Hostname()
	if said, failed := bowline(t, "keys", "--cluster", name).CombinedOutput(); err != nil || failed != nil || !strings.HasSuffix(string(said), "@"+host+"\n") {
		t.Errorf("keys says %s, %v, %v; want who has rotated them, at %s", said, err, failed, host)
	}
	for node, g := range nodes {
		g.awaitRecord(`"event":"keys rotate","principal":"admin","user":`, `@`+host+`"`)
		text, err := os.ReadFile(filepath.Join(filepath.Dir(g.file), "audit.jsonl"))
		if lines := strings.Count(string(text), "\n"); strings.Count(string(text), fmt.Sprintf(`"node":%q`, node)) != lines {
			t.Errorf("not all %d records name the node %s:\n%s", lines, node, text)
		}
		if moves := strings.Count(string(text), `"event":"move"`); err != nil || moves < 3 || moves > 5 {
			t.Errorf("the trail of %s has %d moves, want 3, and those that it has refused: %s, %v", node, moves, text, err)
		}
	}
}

// A gateway or a server that waits for NATS ends at SIGTERM as any other does.
func TestEndsWhileItWaitsForNATS(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	nowhere, stop := stoppableServer(t)
	stop()
	for _, args := range [][]string{{"up", file, "--admin", "off"}, {"serve"}} {
		s := start(t, append(args, "--http", "127.0.0.1:0", "--cluster", "prod", "--cluster-key", newKey(t), "--nats", nowhere)...)
		s.awaitLine("NATS")
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status, rest := s.ended(); status != 0 {
			t.Errorf("%s has ended with status %d: %s", args[0], status, rest)
		}
	}
}

// The command of the gateways of a cluster works in the same way, without tokens and TLS, with the file of the manifest.
func TestKubernetesManifestOfGateways(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	documents := documentsOf(t, "../../../../deploy/kubernetes-cluster.yaml")
	set := documents["StatefulSet"].Spec
	if set.Replicas != 3 || len(set.Template.Spec.Containers) != 1 {
		t.Fatalf("the file has %+v", documents)
	}
	container := set.Template.Spec.Containers[0]
	values := map[string]string{"--nats": permittedServer(t), "--cluster-key": newKey(t), "--nats-creds": "", "--advertise": "127.0.0.1", "--auth": "", "--tls-cert": "", "--tls-key": ""}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"test": map[string]any{"command": self, "args": []string{"serve", "--stdio"}, "env": map[string]string{role: "command"}}}})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*gatewayNode
	for _, pod := range []string{"bowline-0", "bowline-1"} {
		values["--node"] = pod
		nodes = append(nodes, startAt(t, text, here(t, container.Args, values)...))
	}
	_, header, body := ask(t, nodes[0].url, "", initialize)
	session := header.Get("Mcp-Session-Id")
	if status, _, _ := ask(t, nodes[1].url, session, initialized); status != http.StatusAccepted {
		t.Errorf("the session of the first node is not known at the second: %d, %s", status, body)
	}
	if answer := nodes[1].echo(session, "test__echo"); !strings.Contains(answer, `"text":"hi"`) {
		t.Errorf("a call at the second node: %s", answer)
	}
}
