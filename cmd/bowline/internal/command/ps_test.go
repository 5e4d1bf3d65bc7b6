//go:build unix

package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway/admin"
)

// shortFolder is one for sockets, whose paths may not be long.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bowline")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func reportOf(t testing.TB, path string) (r admin.Report) {
	t.Helper()
	got := bowline(t, "", "ps", "--json", "--file", path)
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	return r
}

// awaitServer asks until a server is as it shall be.
func awaitServer(t testing.TB, path, name string, is func(admin.ServerReport) bool) admin.ServerReport {
	t.Helper()
	for began := time.Now(); ; {
		s, _ := reportOf(t, path).Server(name)
		if is(s) {
			return s
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s is %+v", name, s)
		}
	}
}

// TestAGatewayNamesItsFileForEveryFolder starts a gateway with a relative path, and asks it from another folder: of several gateways a person
// chooses one by the file that ps names.
func TestAGatewayNamesItsFileForEveryFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path)
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Chdir(filepath.Dir(path))
	up := startUp(t, filepath.Base(path))
	defer up.end()
	t.Chdir("/")
	if r := reportOf(t, path); r.File != path {
		t.Errorf("the file is %q, not %q", r.File, path)
	}
}

// TestAGatewayIsOperated looks at a gateway of two real children by its socket and by its page, and acts on one of them.
//
// Guarantees: G-0091.11, G-0091.12
func TestAGatewayIsOperated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one", "two")
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	bowline(t, "", "ps").want(t, 3, "", "bowline up starts one")
	up := startUp(t, path)
	defer up.end()
	of := func(args ...string) outcome { t.Helper(); return bowline(t, "", append(args, "--file", path)...) }
	isReady := func(s admin.ServerReport) bool { return s.State == admin.Ready && s.PID != 0 && s.Tools > 0 }
	one, two := awaitServer(t, path, "one", isReady), awaitServer(t, path, "two", isReady)
	if one.PID != pidOf(t, path, "one") || two.PID != pidOf(t, path, "two") {
		t.Errorf("the processes are %d and %d", one.PID, two.PID)
	}
	bowline(t, "", "ps").want(t, 0, "ready", "") // the only one
	of("restart", "one").want(t, 0, "", "")
	again := awaitServer(t, path, "one", isReady)
	if again.PID == one.PID || again.PID != pidOf(t, path, "one") || !again.Since.After(one.Since) {
		t.Errorf("after the restart: %+v, before: %+v", again, one)
	}
	of("stop", "one").want(t, 0, "", "")
	awaitServer(t, path, "one", func(s admin.ServerReport) bool { return s.State == admin.Stopped && s.PID == 0 && s.Tools > 0 })
	of("wake", "one").want(t, 4, "", "stopped")
	of("start", "one").want(t, 0, "", "")
	awaitServer(t, path, "one", isReady)
	of("page", "--no-browser").want(t, 0, up.page+"login/", "")
	t.Run("without a browser", func(t *testing.T) {
		t.Setenv("PATH", "")
		of("page").want(t, 0, up.page+"login/", "open the address above yourself")
	})
	of("restart", "three").want(t, 2, "", "three")
	of("restart").want(t, 2, "", "name one server")
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{"{", `{"servers": {}, "bowline": {"htp": 1}}`} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		of("ps").want(t, 0, "ready", "") // who has broken the file still sees how the servers are
	}
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	if now := awaitServer(t, path, "two", isReady); now.PID != two.PID {
		t.Errorf("the other server: %+v", now)
	}
	response, err := http.Get(up.page)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if rows := strings.Count(string(text), `data-state="ready"`); response.StatusCode != http.StatusOK || rows != 2 || strings.Contains(string(text), "/v1/servers/") {
		t.Errorf("the page has %d rows that are ready: %d %s", rows, response.StatusCode, text)
	}
	response, err = http.Post(up.page+"v1/servers/one/restart", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a restart without the token: %s", response.Status)
	}
}

// TestPsWatches watches a gateway whose server is stopped and started again. Only a signal ends it, with the status of a command that was interrupted; if the gateway ends, what
// was printed last holds no more.
//
// Guarantees: G-0091.11
func TestPsWatches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	up := startUp(t, path)
	awaitServer(t, path, "one", func(s admin.ServerReport) bool { return s.State == admin.Ready && s.Tools > 0 })
	watch := func() (cmd *exec.Cmd, await func(states ...admin.State), said *bytes.Buffer) {
		cmd, said = command(t, "ps", "--watch", "--file", path), new(bytes.Buffer)
		cmd.Stderr = said
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		return cmd, func(states ...admin.State) {
			t.Helper()
			for lines.Scan() {
				if row := strings.Fields(lines.Text()); len(states) > 0 && row[0] == "one" && row[1] == string(states[0]) {
					if states = states[1:]; len(states) == 0 {
						return
					}
				}
			}
			if len(states) > 0 {
				t.Fatalf("it never said that the server is %s: %s", states[0], said)
			}
		}, said
	}
	cmd, await, said := watch()
	await(admin.Ready)
	bowline(t, "", "stop", "one", "--file", path).want(t, 0, "", "")
	await(admin.Stopped)
	bowline(t, "", "start", "one", "--file", path).want(t, 0, "", "")
	await(admin.Ready)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await() // to the end
	if status := exitStatus(t, cmd.Wait()); status != process.ExitInterrupted || said.String() != "bowline: interrupted\n" {
		t.Errorf("interrupted, it ended with status %d and said %q", status, said)
	}
	cmd, await, said = watch()
	await(admin.Ready)
	up.end()
	await()
	if status := exitStatus(t, cmd.Wait()); status != process.ExitCallFailed || said.Len() == 0 {
		t.Errorf("when the gateway ended, it ended with status %d and said %q", status, said)
	}
}

// TestAGatewayReadsItsFileAgain asks for it at the socket. A file that is refused is told to whoever asks, and in the report.
//
// Guarantees: G-0091.12
func TestAGatewayReadsItsFileAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	socket := filepath.Join(shortFolder(t), "s")
	mcpFile(t, path, "one")
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	withTop := func(top string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.TrimSuffix(string(plain), "}")+`, "bowline": `+top+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	withTop(`{"admin": {"socket": "` + socket + `"}}`)
	up := startUp(t, path)
	defer up.end()
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	bowline(t, "", "reload", "--file", path).want(t, 0, "", "")
	withTop(`{"maxName": 1}`)
	bowline(t, "", "reload", "--admin", socket).want(t, 4, "", "maxName")
	bowline(t, "", "ps", "--json", "--admin", socket).want(t, 0, "maxName", "")
	bowline(t, "", "ps", "--admin", socket).want(t, 0, "one", "the file is not applied: "+path+":")
	withTop(`{}`)
	bowline(t, "", "reload", "--admin", socket).want(t, 0, "", "")
	if got := bowline(t, "", "ps", "--json", "--admin", socket); strings.Contains(got.stdout, "maxName") {
		t.Errorf("the mistake is still told: %s", got.stdout)
	}
	bowline(t, "", "stderr", "one", "--admin", socket).want(t, 0, "", "")
	bowline(t, "", "stderr", "nobody", "--admin", socket).want(t, 2, "", `no such server: the file has no "nobody"`)
	bowline(t, "", "ps", "--admin", socket+"none").want(t, 3, "", "no gateway runs")
}

// TestWhyAServerIsNotReady checks that what is wrong is said once, and in one line.
//
// Guarantees: G-0090.15, G-0091.11
func TestWhyAServerIsNotReady(t *testing.T) {
	now := time.Now()
	for want, s := range map[string]admin.ServerReport{
		"-":                                {State: admin.Ready, Reason: "handshaken", LastFailure: "exited", Stderr: "x"},
		"3 connections of clients":         {State: admin.Ready, Connections: 3},
		"tools: a is hidden":               {State: admin.Ready, Notices: []string{"tools: a is hidden"}},
		"tools: a; and 2 more":             {State: admin.Ready, Notices: []string{"tools: a", "tools: b", "tools: c"}},
		"starts on demand":                 {State: admin.Stopped, OnDemand: true, Reason: "starts on demand", Notices: []string{"tools: a"}},
		"mcp.json:3:1: NOPE is not set":    {State: admin.Ready, Mistake: "mcp.json:3:1: NOPE is not set", Notices: []string{"tools: a"}},
		"exited; 1 connection of a client": {State: admin.Starting, LastFailure: "exited", Connections: 1},
		"it has not answered yet":          {State: admin.Starting, Reason: "link opened"},
		"exited":                           {State: admin.Starting, Reason: "link opened", LastFailure: "exited"},
		"exited: status 3: oh no; next attempt in 4s":    {State: admin.Backoff, LastFailure: "exited: status 3: oh no", Stderr: "oh no", NextAttempt: now.Add(4 * time.Second)},
		"unreachable; stderr: a\\tb; next attempt in 0s": {State: admin.Backoff, LastFailure: "unreachable", Stderr: "a\tb", NextAttempt: now.Add(-time.Second)},
		"mcp.json:1:1: NOPE is not set":                  {State: admin.Misconfigured, Mistake: "mcp.json:1:1: NOPE is not set"},
		"mcp.json:2:1: NOPE is not set":                  {State: admin.Ready, Mistake: "mcp.json:2:1: NOPE is not set"},
	} {
		if got := whyOf(s, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
