//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
)

// A hostRun is a host whose server is `bowline up FILE --stdio`.
type hostRun struct {
	*client.Session
	t    *testing.T
	path string
}

// startHost starts a host of a revision. The gateway lingers for a second.
func startHost(t *testing.T, path, version string) *hostRun {
	t.Helper()
	server := &stdio.Command{Path: executable(t), Args: []string{"up", path, "--stdio", "--linger", "1s"}, Env: []string{role + "=command", "GORACE=atexit_sleep_ms=0"}}
	session, err := client.New(protocol.Implementation{Name: "host", Version: "1"}, client.Options{ProtocolVersion: version}).Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	h := &hostRun{session, t, path}
	t.Cleanup(h.leave)
	return h
}

func (h *hostRun) leave() {
	if err := h.Close(context.Background()); err != nil {
		h.t.Error(err)
	}
}

func (h *hostRun) echo(server string) error {
	text, err := client.Call[string](h.t.Context(), h.Session, server+"__echo", map[string]string{"message": "hello " + server})
	if err == nil && !strings.Contains(text, "hello "+server) {
		h.t.Errorf("%s: %q", server, text)
	}
	return err
}

// awaitEcho calls until a server answers: until then each call says that it was not executed.
func (h *hostRun) awaitEcho(server string) {
	h.t.Helper()
	for began := time.Now(); ; {
		err := h.echo(server)
		if err == nil {
			return
		}
		if time.Since(began) > 30*time.Second {
			h.t.Fatal(err)
		}
	}
}

// gatewayOf returns the process that has started a server.
func gatewayOf(t *testing.T, path, server string) int { return pidOf(t, path, server+".parent") }

// alone gives a test folders in which it finds no other gateway, and no log of one.
func alone(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// hostFile writes a file of two servers. Gateways of other files do not matter to it.
func hostFile(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one", "two")
	return path
}

// TestHostsShareAGateway starts two hosts of different revisions at the same moment: one gateway runs for both, and ends after the last one.
//
// Guarantees: G-0092.2, G-0092.4
func TestHostsShareAGateway(t *testing.T) {
	alone(t)
	path := hostFile(t)
	hosts := make([]*hostRun, 2)
	var starting sync.WaitGroup
	for i, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		starting.Go(func() {
			hosts[i] = startHost(t, path, version)
			for _, server := range []string{"one", "two"} {
				if err := hosts[i].echo(server); err != nil {
					t.Error(err)
				}
			}
		})
	}
	starting.Wait()
	logs, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "bowline", "log", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("the logs: %q, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || strings.Count(string(text), "starting one, two") != 1 {
		t.Errorf("the log of the gateway: %v\n%s", err, text)
	}
	gateway, one, two := gatewayOf(t, path, "one"), pidOf(t, path, "one"), pidOf(t, path, "two")
	bowline(t, "", "ps").want(t, 0, "ready", "") // the only one
	hosts[0].leave()
	if err := hosts[1].echo("one"); err != nil {
		t.Error(err)
	}
	hosts[1].leave()
	awaitGone(t, gateway, one, two)
	bowline(t, "", "ps").want(t, 3, "", "no gateway runs")
}

// TestAHostOutlivesItsGateway kills the gateway of a host in the middle of a call: the call says that it may have been executed, and the host goes
// on with the session that it has.
//
// Guarantees: G-0092.3
func TestAHostOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			path := hostFile(t)
			host := startHost(t, path, version)
			host.awaitEcho("one")
			epoch, gateway := host.Status().Epoch, gatewayOf(t, path, "one")
			children := []int{pidOf(t, path, "one"), pidOf(t, path, "two")}
			lost := make(chan error, 1)
			go func() {
				_, err := client.Call[string](t.Context(), host.Session, "one__slow", map[string]any{"seconds": 60})
				lost <- err
			}()
			awaitServer(t, path, "one", func(s admin.ServerReport) bool { return s.Calls > 0 })
			if err := syscall.Kill(gateway, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := <-lost; err == nil || !strings.Contains(err.Error(), "It may have been executed") {
				t.Errorf("the call that was under way: %v", err)
			}
			awaitGone(t, append(children, gateway)...)
			host.awaitEcho("two")
			if now := host.Status().Epoch; now != epoch || gatewayOf(t, path, "two") == gateway {
				t.Errorf("epoch %d, before %d", now, epoch)
			}
			gateway = gatewayOf(t, path, "two")
			host.leave()
			awaitGone(t, gateway)
		})
	}
}

// TestAHostIsToldWhatIsWrong gives hosts files that cannot be served, and a folder in which no gateway can write its log.
//
// Guarantees: G-0092.5
func TestAHostIsToldWhatIsWrong(t *testing.T) {
	path := hostFile(t)
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}` + "\n"
	wrong := func(t *testing.T, text string) {
		t.Helper()
		got := bowline(t, initialize, "up", path, "--stdio")
		got.want(t, 0, text, text)
		got.want(t, 0, `"id":1,"error":{"code":-32603`, "there is no gateway")
	}
	run := os.Getenv("XDG_RUNTIME_DIR")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(t.TempDir(), strings.Repeat("x", 100)))
	wrong(t, "choose a shorter one")
	t.Setenv("XDG_RUNTIME_DIR", run)
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "${NOT_SET_AT_ALL}"}}, "bowline": {"maxName": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong(t, "maxName")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"a__b": {"command": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bowline(t, initialize, "up", path, "--stdio", "--strict").want(t, 0, "a__b", "a__b")
	t.Setenv("XDG_CONFIG_HOME", path)
	wrong(t, "the log of the gateway")
	path = filepath.Join(t.TempDir(), "none.json")
	wrong(t, "none.json")
}

// TestAGatewayIsNoServerOfItself gives a host the file that starts its gateway: the entry fails and says why, and the others are served.
//
// Guarantees: G-0092.5
func TestAGatewayIsNoServerOfItself(t *testing.T) {
	t.Parallel()
	path := hostFile(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	self := fmt.Sprintf(`{"mcpServers": {"self": {"command": %q, "args": ["up", %q, "--stdio"], "env": {%q: "command"}}, `, executable(t), path, role)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `{"mcpServers": {`, self, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	host := startHost(t, path, protocol.Latest)
	host.awaitEcho("one")
	awaitServer(t, path, "self", func(s admin.ServerReport) bool { return strings.Contains(s.LastFailure, "gateway itself") })
	gateway := gatewayOf(t, path, "one")
	host.leave()
	awaitGone(t, gateway)
}

// TestAGatewayInTheBackgroundHasTheFlagsOfItsHost checks that every flag that a host is not refused counts for the gateway that it starts.
//
// Guarantees: G-0092.4
func TestAGatewayInTheBackgroundHasTheFlagsOfItsHost(t *testing.T) {
	command, u := new(cobra.Command), &upping{path: "-mcp.json"}
	u.addFlags(command)
	given := []string{"--admin=off", "--catalogue=c.json", "--linger=2s", "--log-level=DEBUG", "--no-try=true", "--strict=true", "--watch=true"}
	if err := command.ParseFlags(append(given, "--stdio")); err != nil {
		t.Fatal(err)
	}
	want := append(append([]string{"up", "--background"}, given...), "--", "-mcp.json")
	if got := u.inBackground(command); !slices.Equal(got, want) {
		t.Errorf("the arguments are %q", got)
	}
}

// TestAGatewayOutlivesWhoHasStartedIt starts a gateway for a host that has left before it is ready: it serves the others, and its log has a bound.
//
// Guarantees: G-0092.4, G-0092.6
func TestAGatewayOutlivesWhoHasStartedIt(t *testing.T) {
	t.Parallel()
	path := hostFile(t)
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	const long = 1 << 20
	if err := log.Truncate(long); err != nil {
		t.Fatal(err)
	}
	reads, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	gateway := command(t, "up", path, "--background", "--linger", "1s")
	gateway.Stdout, gateway.Stderr = writes, log
	if err := errors.Join(gateway.Start(), reads.Close(), writes.Close()); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Wait(); err != nil {
		t.Errorf("the gateway: %v", err)
	}
	if text, err := os.ReadFile(log.Name()); err != nil || len(text) > long || !strings.HasPrefix(string(text), "bowline: starting one, two") {
		t.Errorf("the log has %d bytes, %v", len(text), err)
	}
}

// TestAGatewayInTheBackgroundIsReplaced starts `bowline up` in a terminal while one runs for a host: that one ends, no server runs twice, and the host
// goes on with its session. `bowline down` ends either.
//
// Guarantees: G-0092.8
func TestAGatewayInTheBackgroundIsReplaced(t *testing.T) {
	alone(t)
	path := hostFile(t)
	host := startHost(t, path, protocol.LatestLegacy)
	host.awaitEcho("one")
	background, child := gatewayOf(t, path, "one"), pidOf(t, path, "one")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bowline(t, "", "up", path, "--http", taken.Addr().String(), "--admin", "off").want(t, 5, "", "in use")
	host.awaitEcho("one")
	if gateway := gatewayOf(t, path, "one"); gateway != background {
		t.Error("a gateway that could not serve has ended the one in the background")
	}
	up := startUp(t, path)
	bowline(t, "", "up", path, "--http", taken.Addr().String(), "--admin", "off").want(t, 5, "", "another gateway serves the file")
	awaitGone(t, background, child)
	host.awaitEcho("one")
	host.awaitEcho("two")
	for _, server := range []string{"one", "two"} {
		if gateway := gatewayOf(t, path, server); gateway != up.cmd.Process.Pid {
			t.Errorf("the gateway of %s is %d, not %d", server, gateway, up.cmd.Process.Pid)
		}
	}
	bowline(t, "", "down").want(t, 0, "", "") // the only one
	for up.lines.Scan() {
	}
	if status := exitStatus(t, up.cmd.Wait()); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
	host.awaitEcho("one") // which a new one in the background answers
	background = gatewayOf(t, path, "one")
	host.leave()
	if background == up.cmd.Process.Pid {
		t.Fatal("the gateway has not ended")
	}
	bowline(t, "", "down", "--file", path).want(t, 0, "", "")
	awaitGone(t, background)
	bowline(t, "", "down").want(t, 3, "", "no gateway runs")
}
