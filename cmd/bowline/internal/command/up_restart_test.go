//go:build unix

package command

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// kill ends the gateway at once, and waits until neither it nor its children are left.
func (r *upRun) kill(children ...int) {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	for r.lines.Scan() {
	}
	_ = r.cmd.Wait() // it was killed
	awaitGone(r.t, children...)
}

// awaitGone waits until the processes have ended.
func awaitGone(t testing.TB, pids ...int) {
	t.Helper()
	for began := time.Now(); len(pids) > 0; {
		if errors.Is(syscall.Kill(pids[0], 0), syscall.ESRCH) {
			pids = pids[1:]
		} else if time.Since(began) > 20*time.Second {
			t.Fatalf("process %d is left", pids[0])
		}
	}
}

// TestASessionOutlivesItsGateway kills a gateway and starts it again at the same address: the client goes on without initialize, and no
// child of the first is left.
//
// Guarantees: G-0092.1
func TestASessionOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one", "two")
	up := startUp(t, path)
	var away sync.RWMutex // a client that has been refused twice begins a new session, however long a gateway takes to start
	session := up.clientOver(protocol.LatestLegacy, &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		away.RLock()
		defer away.RUnlock()
		return new(net.Dialer).DialContext(ctx, network, address)
	}}})
	echo := func() error {
		_, err := client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hello"})
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	id, children := session.Status().Epoch, []int{pidOf(t, path, "one"), pidOf(t, path, "two")}
	away.Lock()
	there := sync.OnceFunc(away.Unlock)
	defer there()
	up.kill(children...)
	address := regexp.MustCompile(`[0-9.]+:[0-9]+`).FindString(up.url)
	again := startUpAt(t, path, address)
	there()
	for began := time.Now(); ; {
		err := echo()
		if err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
	if now := session.Status().Epoch; now != id {
		t.Errorf("the session began again: epoch %d, before %d", now, id)
	}
	again.end()
	awaitGone(t, pidOf(t, path, "one"), pidOf(t, path, "two"))
}

// TestSessionsThatCannotBeKept checks that clients are served without.
//
// Guarantees: G-0092.1
func TestSessionsThatCannotBeKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(t.TempDir(), "config"))
	if err := os.WriteFile(os.Getenv("XDG_CONFIG_HOME"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "up", path, "--http", ":0", "--admin", "off")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &upRun{t: t, cmd: cmd, lines: bufio.NewScanner(stderr)}
	if text := r.await("sessions end with this gateway"); !strings.Contains(text, "config") {
		t.Error(text)
	}
	r.await("bowline: serving ")
	r.end()
}
