//go:build unix

package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var auditedCalls = flag.Int("audited", 400, "how many calls are answered while a gateway with an audit trail is killed again and again")

// A caller makes calls of which no two have the same arguments, and remembers how each has ended.
type caller struct {
	session *client.Session
	ended   map[string]string // by the arguments
}

// call makes calls until enough are answered.
func (c *caller) call(ctx context.Context, made, answered *atomic.Int64) {
	for int(answered.Load()) < *auditedCalls {
		arguments := fmt.Sprintf(`{"message":"%d"}`, made.Add(1))
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := c.session.CallTool(ctx, &protocol.CallToolParams{Name: "one__echo", Arguments: json.RawMessage(arguments)})
		cancel()
		failed := (*conn.CallError)(nil)
		switch {
		case err == nil:
			c.ended[arguments] = "answered"
			answered.Add(1)
		case errors.As(err, &failed):
			c.ended[arguments] = failed.Delivery.String()
		default: // an answer of the gateway, with an outcome
			c.ended[arguments] = "refused"
		}
	}
}

// TestAuditTrailUnderKills kills servers and the gateway while clients make calls. The trail is whole at the end, each call that a client saw answered has one record, and no call has two.
//
// Guarantees: G-0099.4, G-0099.8
func TestAuditTrailUnderKills(t *testing.T) {
	dir := t.TempDir()
	path, trail := filepath.Join(dir, "mcp.json"), filepath.Join(dir, "audit.jsonl")
	mcpFile(t, path, "one")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text[:len(text)-1], `, "bowline": {"audit": {"file": "audit.jsonl", "sync": true}}}`...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ada := newUser(t, "token", "add", "ada")
	up := startUp(t, path, "--auth", "tokens")
	at, err := url.Parse(up.url)
	if err != nil {
		t.Fatal(err)
	}
	var made, answered atomic.Int64
	var calling sync.WaitGroup
	callers := make([]*caller, 8)
	for i := range callers {
		version := []string{protocol.LatestLegacy, protocol.Latest}[i%2]
		to := &streamable.Client{URL: up.url, Header: http.Header{"Authorization": {"Bearer " + ada}}}
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: version, Calls: client.CallOptions{WaitForReady: true}}).Connect(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close(context.Background()) })
		callers[i] = &caller{session, make(map[string]string)}
		calling.Go(func() { callers[i].call(t.Context(), &made, &answered) })
	}
	kills, rounds := 0, 4+*auditedCalls/5000
	for round := 1; round <= rounds; round++ { // the server and the gateway in turn
		for int(answered.Load()) < round**auditedCalls/(rounds+1) {
			<-time.NewTimer(time.Millisecond).C
		}
		if round%2 == 1 {
			text, err := os.ReadFile(filepath.Join(dir, "one.pid"))
			if pid, wrong := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && wrong == nil { // else it is starting just now
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			continue
		}
		kills++
		up.kill()
		up = startUpAt(t, path, at.Host, "--auth", "tokens")
	}
	calling.Wait()
	up.end()
	bowline(t, "", "audit", trail, "--verify").want(t, 0, fmt.Sprintf("%d gateways were killed", kills), "")
	recorded := recordsOf(t, trail)
	for _, c := range callers {
		for arguments, how := range c.ended {
			if n := recorded(arguments); n > 1 || how == "answered" && n != 1 {
				t.Errorf("%s: %d records of a call that has ended as %q", arguments, n, how)
			}
		}
	}
	t.Logf("%d of %d calls were answered", answered.Load(), made.Load())
}

// recordsOf returns a function that tells how many records there are of a call with these arguments.
func recordsOf(t *testing.T, trail string) func(arguments string) int {
	t.Helper()
	key, err := audit.ReadKey(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "bowline", "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	printed := bowline(t, "", "audit", trail, "--json")
	printed.want(t, 0, "", "")
	all := make(map[string]int)
	for line := range strings.Lines(printed.stdout) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Method == protocol.MethodCallTool {
			all[r.Arguments]++
		}
	}
	digest := audit.Digest(key)
	return func(arguments string) int { return all[digest([]byte(arguments))] }
}
