//go:build unix

package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An upRun is a running `bowline up`.
type upRun struct {
	t     testing.TB
	cmd   *exec.Cmd
	page  string // its URL
	url   string
	lines *bufio.Scanner // of its standard error
	said  bytes.Buffer   // what was read of that

	readers sync.WaitGroup // goroutines that read lines while the test does something else
}

// startUp runs `bowline up` over a file, and waits until it serves.
func startUp(t testing.TB, path string, flags ...string) *upRun {
	t.Helper()
	return startUpAt(t, path, ":0", flags...)
}

func startUpAt(t testing.TB, path, address string, flags ...string) *upRun {
	t.Helper()
	r := &upRun{t: t, cmd: command(t, append([]string{"up", path, "--http", address, "--admin", ":0"}, flags...)...)}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewScanner(io.TeeReader(stderr, &r.said))
	r.page = regexp.MustCompile(`http://[^;]*`).FindString(r.await("the page is "))
	_, r.url, _ = strings.Cut(r.await("bowline: serving "), "serving ")
	return r
}

// await reads the standard error up to a line that contains this fragment.
func (r *upRun) await(fragment string) string {
	r.t.Helper()
	if !r.says(fragment) {
		r.t.Fatalf("it never printed %q", fragment)
	}
	return r.lines.Text()
}

// says reads the standard error up to a line that contains all fragments, and reports whether there is one before the end.
func (r *upRun) says(fragments ...string) bool {
	for r.lines.Scan() {
		if !slices.ContainsFunc(fragments, func(fragment string) bool { return !strings.Contains(r.lines.Text(), fragment) }) {
			return true
		}
	}
	return false
}

// end sends a signal, and checks that the gateway ends properly.
func (r *upRun) end() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	r.readers.Wait() // of a test that has failed: one that waits for its line reads to the end
	for r.lines.Scan() {
	}
	if status := exitStatus(r.t, r.cmd.Wait()); status != 0 {
		r.t.Errorf("it ended with status %d", status)
	}
}

func (r *upRun) client(version string) *client.Session {
	r.t.Helper()
	return r.clientOver(version, nil)
}

// clientOver connects a client that sends its requests over web; nil: over one of its own.
func (r *upRun) clientOver(version string, web *http.Client) *client.Session {
	r.t.Helper()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: version}).Connect(r.t.Context(), &streamable.Client{URL: r.url, HTTP: web})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// mcpFile writes a file whose servers are this program, and which write their process ids to files.
func mcpFile(t testing.TB, path string, names ...string) {
	t.Helper()
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`%q: {"command": "/bin/sh", "args": ["-c", %q], "env": {%q: "command", "BOWLINE_KEYRING": "off"}}`,
			name, fmt.Sprintf("echo $$ > %[1]s.pid; echo $PPID > %[1]s.parent.pid; exec '%[2]s' serve --stdio", filepath.Join(filepath.Dir(path), name), executable(t)), role))
	}
	text := `{"mcpServers": {` + strings.Join(entries, ",\n") + `}}`
	if !json.Valid([]byte(text)) {
		t.Fatal(text)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func pidOf(t testing.TB, path, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestUpServesTheServersOfAFile calls a tool of each of two real child processes, and kills one.
//
// Guarantees: G-0088.1, G-0088.2
func TestUpServesTheServersOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one", "two")
	up := startUp(t, path)
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		session := up.client(version)
		echo := func(server string) (string, error) {
			return client.Call[string](t.Context(), session, server+"__echo", map[string]string{"message": "hello " + server})
		}
		for _, server := range []string{"one", "two"} {
			if text, err := echo(server); err != nil || !strings.Contains(text, "hello "+server) {
				t.Fatalf("%s: %q, %v", server, text, err)
			}
		}
		killed := pidOf(t, path, "one")
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for {
			text, err := echo("one")
			if err == nil && strings.Contains(text, "hello one") && pidOf(t, path, "one") != killed {
				break
			}
			if time.Since(began) > 20*time.Second {
				t.Fatalf("the server that was killed has not answered: %q, %v", text, err)
			}
		}
		t.Logf("answered %v after the kill", time.Since(began))
	}
	up.end()
	if strings.Contains(up.said.String(), "level=DEBUG") {
		t.Error("it logs at the level debug")
	}
	for _, server := range []string{"one", "two"} {
		if pid := pidOf(t, path, server); syscall.Kill(pid, 0) == nil {
			t.Errorf("%s, process %d, is left", server, pid)
		}
	}
}

// TestUpReadsTheFileAgain changes the file of a running gateway. Each file that was read, or could not be, has one record in the trail, without what is in it.
//
// Guarantees: G-0088.4, G-0099.7
func TestUpReadsTheFileAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	trail := filepath.Join(filepath.Dir(path), "audit.jsonl")
	mcpFile(t, path, "one")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fmt.Appendf(text[:len(text)-1], `, "bowline": {"audit": {"file": %q, "sync": true}}}`, trail), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // of the key
	up := startUp(t, path)
	session := up.client("")
	if _, err := client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "a"}); err != nil {
		t.Fatal(err)
	}
	before := pidOf(t, path, "one")
	reload := func(want string) {
		if err := up.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		up.await(want)
	}
	if err := os.WriteFile(path, []byte(`{"mcpServers": {}, "bowline": {"maxName": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("nothing is changed")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"one": S3CRET}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("nothing is changed")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"one": {"command": "${NOT_SET_AT_ALL}"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("NOT_SET_AT_ALL")
	mcpFile(t, path, "one", "two")
	reload("starting two")
	if _, err := client.Call[string](t.Context(), session, "two__echo", map[string]string{"message": "a"}); err != nil {
		t.Errorf("the new server: %v", err)
	}
	if pidOf(t, path, "one") != before {
		t.Error("the server that is the same was started again")
	}
	up.end()
	var applied []string
	printed := bowline(t, "", "audit", trail, "--json")
	for line := range strings.Lines(printed.stdout) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Event == "apply" {
			applied = append(applied, r.Principal+" "+r.Outcome)
		}
	}
	if want := []string{"admin ", "admin failed", "admin failed", "admin failed", "admin "}; !slices.Equal(applied, want) || strings.Contains(printed.stdout, "S3CRET") {
		t.Errorf("records: %q, want %q, in %s", applied, want, printed.stdout)
	}
}

// TestUpRefuses checks what is refused before anything is started.
//
// Guarantees: G-0088.4
func TestUpRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	wrong := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, wrong, "a__b", "c__d")
	bowline(t, "", "up", path, "--check").want(t, 0, "no mistakes, 1 server", "")
	bowline(t, "", "up", wrong, "--check").want(t, 2, "", "a__b")
	bowline(t, "", "up", wrong, "--strict").want(t, 2, "", "c__d")
	bowline(t, "", "up", path, "--log-level", "loud").want(t, 2, "", "--log-level")
	bowline(t, "", "up", path, "--http", "0.0.0.0:0").want(t, 2, "", "--insecure")
	bowline(t, "", "up", path, "--stdio", "--http", ":0").want(t, 2, "", "--http has no effect with --stdio")
	bowline(t, "", "up", path, "--stdio", "--linger", "0").want(t, 2, "", "--linger 0s is below 1s")
	bowline(t, "", "up", path, "--http", ":0", "--admin", "0.0.0.0:0").want(t, 2, "", "--insecure")
	bowline(t, "", "up", path, "--http", ":0", "--admin", "here").want(t, 2, "", "--admin")
	open := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(open, []byte(`{"mcpServers": {}, "bowline": {"http": "0.0.0.0:0"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bowline(t, "", "up", open).want(t, 2, "", "--insecure")
	bowline(t, "", "up", filepath.Join(t.TempDir(), "none.json")).want(t, 2, "", "none.json")
	bowline(t, "", "up").want(t, 2, "", "name one file, such as mcp.json")
	bowline(t, "", "up", filepath.Dir(path)).want(t, 2, "", "name a file, such as "+path)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bowline(t, "", "up", path, "--http", taken.Addr().String(), "--admin", "off").want(t, 5, "", "choose another port")
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "one.pid")); err == nil {
		t.Error("a server was started")
	}
}

// TestUpSaysThatOthersMayReadSecrets checks a file with a secret in clear text, and starts a gateway with it. That others may open it is said once, without the secret, and
// is no mistake.
//
// Guarantees: G-0018.24
func TestUpSaysThatOthersMayReadSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	const said = "has secrets in clear text"
	for _, c := range []struct {
		value  string
		mode   os.FileMode
		isSaid bool
	}{{"hunter2", 0o644, true}, {"hunter2", 0o640, true}, {"hunter2", 0o600, false}, {"${BOWLINE_TEST_TOKEN:-}", 0o644, false}} {
		text := fmt.Appendf(nil, `{"mcpServers": {"one": {"command": %q, "args": ["serve", "--stdio"], "env": {%q: "command", "API_TOKEN": %q}}}}`, executable(t), role, c.value)
		if err := errors.Join(os.WriteFile(path, text, c.mode), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		checked := bowline(t, "", "up", path, "--check", "--strict")
		checked.want(t, 0, "no mistakes", "")
		up := startUp(t, path)
		up.end()
		for _, got := range []string{checked.stderr, up.said.String()} {
			if isSaid := strings.Count(got, said) == 1 && strings.Contains(got, "chmod 600 '"+path+"'") && strings.Contains(got, "one.env.API_TOKEN"); isSaid != c.isSaid || strings.Contains(got, "hunter2") {
				t.Errorf("%+v: %s", c, got)
			}
		}
	}
}
