//go:build unix

package doors

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// atHome gives a test folders of its own, in which sockets have short paths.
func atHome(t *testing.T) (dir string) {
	t.Helper()
	var err error
	if dir, err = os.MkdirTemp("/tmp", "bowline"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	return dir
}

// A still gateway has a file that does not change.
type still struct{ *gateway.Gateway }

func (still) End() {}

func (still) Records() ([]audit.Record, <-chan struct{}, bool) { return nil, nil, false }

func (still) Reload(context.Context) error { return nil }

// opened opens the doors of a gateway without servers, and returns what was said.
func opened(t *testing.T, o Options) (said []string, err error) {
	t.Helper()
	o.Say = func(text string) { said = append(said, text) }
	g := gateway.New(gateway.Options{})
	t.Cleanup(func() { g.Close(context.Background()) })
	d, err := Open(still{g}, o)
	if err == nil {
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return said, err
}

// All gateways of a user have one token, also those that start at the same time, and nobody else can read it.
//
// Guarantees: G-0091.13
func TestOneTokenForAll(t *testing.T) {
	atHome(t)
	var all sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		all.Go(func() {
			token, _, err := readToken()
			if err != nil {
				t.Error(err)
			}
			tokens[i] = token
		})
	}
	all.Wait()
	_, path, err := readToken()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		if token != tokens[0] || len(token) < 20 {
			t.Errorf("the tokens are %q", tokens)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the token: %v, %v", info, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if token, _, err := readToken(); token != "" || err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("an empty file: %q, %v", token, err)
	}
}

// What another program has is said, and is no failure. An address that other machines reach is refused.
//
// Guarantees: G-0091.13, G-0091.22
func TestWhatIsTaken(t *testing.T) {
	atHome(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if said, err := opened(t, Options{File: "a.json", Page: taken.Addr().String()}); err != nil || len(said) != 1 || !strings.Contains(said[0], "the page is not served") {
		t.Errorf("a port that is in use: %q, %v", said, err)
	}
	if said, err := opened(t, Options{File: "a.json", Page: Off}); err != nil || len(said) != 1 || !strings.Contains(said[0], "another gateway runs") {
		t.Errorf("a socket that is in use: %q, %v", said, err)
	}
	if said, err := opened(t, Options{File: "b.json", Page: "0.0.0.0:0"}); err == nil || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("an address that other machines reach: %q, %v", said, err)
	}
	if said, err := opened(t, Options{File: "b.json", Page: ":0"}); err != nil || len(said) != 1 || !strings.Contains(said[0], "the page is http://127.0.0.1:") {
		t.Errorf("an address of this machine: %q, %v", said, err)
	}
	if said, err := opened(t, Options{File: "d.json", Page: Off, Probes: "0.0.0.0:0"}); err != nil || len(said) != 1 || !strings.Contains(said[0], "probes and metrics are at http://127.0.0.1:") {
		t.Errorf("probes for other machines: %q, %v", said, err)
	}
	if said, err := opened(t, Options{File: "e.json", Page: Off, Probes: taken.Addr().String()}); err == nil || !strings.Contains(err.Error(), "--probes") {
		t.Errorf("probes at a port that is in use: %q, %v", said, err)
	}
	if said, err := opened(t, Options{File: "c.json", Page: "0.0.0.0:0", Insecure: true}); err != nil || len(said) != 1 || !strings.Contains(said[0], "the page is http://127.0.0.1:") {
		t.Errorf("all addresses of this machine: %q, %v", said, err)
	}
}

// Without a folder for settings the page is served, and says that nobody can act there, and what to set.
//
// Guarantees: G-0091.13
func TestNoFolderForSettings(t *testing.T) {
	atHome(t)
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, "")
	}
	said, err := opened(t, Options{File: "a.json", Page: ":0"})
	if err != nil || len(said) != 1 || !strings.Contains(said[0], "the page is http") || !strings.Contains(said[0], "nobody can act there") || !strings.Contains(said[0], "set it") {
		t.Errorf("said %q, %v", said, err)
	}
}

// A host that passes no XDG_RUNTIME_DIR on to its commands finds the gateway of a terminal that has it, and no folder of somebody else.
//
// Guarantees: G-0092.2
func TestAHostWithoutTheRuntimeFolder(t *testing.T) {
	users := atHome(t)
	own := filepath.Join(users, strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", own)
	terminal, err := folderIn(users)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if host, err := folderIn(users); err != nil || host != terminal || host != filepath.Join(own, "bowline") {
		t.Errorf("the host looks in %s, and the terminal in %s, %v", host, terminal, err)
	}
	for _, mode := range []os.FileMode{0o755, 0o777} {
		if err := os.Chmod(own, mode); err != nil {
			t.Fatal(err)
		}
		if host, err := folderIn(users); err != nil || !strings.HasPrefix(host, filepath.Join(users, "config")) {
			t.Errorf("with mode %o: %s, %v", mode, host, err)
		}
	}
}

// Without a flag the only gateway that runs is meant; of several, none.
//
// Guarantees: G-0091.11
func TestTheOnlyOneIsMeant(t *testing.T) {
	dir := atHome(t)
	if err := os.MkdirAll(filepath.Join(dir, "run", "bowline"), 0o700); err != nil {
		t.Fatal(err)
	}
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "run", "bowline", "killed"+socketEnd), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	if _, err := findOnly(t.Context()); err == nil || !strings.Contains(err.Error(), "no gateway runs, unless its file names its socket: then --admin") {
		t.Errorf("none runs: %v", err)
	}
	opened(t, Options{File: filepath.Join(dir, "a.json"), Page: Off})
	only, err := findOnly(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := only.Report(t.Context()); err != nil {
		t.Error(err)
	}
	opened(t, Options{File: filepath.Join(dir, "b.json"), Page: Off})
	if _, err := findOnly(t.Context()); err == nil || !strings.Contains(err.Error(), "--file") {
		t.Errorf("two run: %v", err)
	}
}

// Who asks for the gateway of a file that cannot be read whole is told so: its socket may be in that file.
func TestAFileThatMayNameItsSocket(t *testing.T) {
	dir := atHome(t)
	file := filepath.Join(dir, "mcp.json")
	for text, doubts := range map[string]bool{
		`{"mcpServers":{},"bowline":{"admin":{"socket":"${NOT_SET}/a.sock"}}}`: true,
		`{"mcpServers":{}}`: false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		choice := Choice{file: file}
		err := choice.Use(t.Context(), func(c *admin.Client) error { _, err := c.Report(t.Context()); return err })
		if !errors.Is(err, admin.ErrNotRunning) || strings.Contains(err.Error(), "NOT_SET") != doubts {
			t.Errorf("%s: %v", text, err)
		}
	}
}
