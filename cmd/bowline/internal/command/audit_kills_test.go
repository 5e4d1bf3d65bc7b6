//go:build unix

package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
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

// A saw is how a call has ended for its client.
type saw struct{ name, arguments, how string }

// What a client sees of a call. Of others it does not know whether the gateway has got them.
const (
	sawAnswer = "answered"
	sawError  = "refused" // an error in the answer
)

// A caller makes calls one after the other, of which no two have the same arguments, and remembers how each has ended.
type caller struct {
	session *client.Session
	ended   []saw
}

// call makes calls until so many are answered.
func (c *caller) call(ctx context.Context, enough int, made, answered *atomic.Int64) {
	for int(answered.Load()) < enough {
		name, arguments := callOf(made.Add(1))
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := c.session.CallTool(ctx, &protocol.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
		cancel()
		failed, how := (*conn.CallError)(nil), sawError
		switch {
		case err == nil:
			how = sawAnswer
			answered.Add(1)
		case errors.As(err, &failed) && failed.Cause != conn.PeerError:
			how = failed.Delivery.String()
		}
		c.ended = append(c.ended, saw{name, arguments, how})
	}
}

// callOf returns a call unlike any other. Some take as long as it takes to kill their server, which makes the gateway pass them on again, and some name a tool that there is not.
func callOf(n int64) (name, arguments string) {
	switch n % 10 {
	case 0:
		return fmt.Sprint("one__none", n), "{}"
	case 1, 2, 3:
		return "one__slow", fmt.Sprintf(`{"seconds":0.01%07d}`, n)
	default:
		return "one__echo", fmt.Sprintf(`{"message":"%d"}`, n)
	}
}

// TestAuditTrailUnderKills kills servers and gateways while clients make calls. The trail is whole at the end, and says how many gateways were killed. Each outcome that a client saw has one
// record, and no call has two. Only what a gateway that was killed had in its queue may be missing, and with "sync" nothing.
//
// Guarantees: G-0099.4, G-0099.7, G-0099.8
func TestAuditTrailUnderKills(t *testing.T) {
	for _, of := range []struct {
		name              string
		sync              bool
		servers, gateways bool // which are killed
		share             int  // of the calls, in percent
	}{
		{"sync, servers and gateways", true, true, true, 40},
		{"default, servers", false, true, false, 30},
		{"default, gateways", false, false, true, 30},
	} {
		t.Run(of.name, func(t *testing.T) {
			k := killing{t: t, calls: *auditedCalls * of.share / 100}
			k.begin(of.sync)
			kills := k.run(of.servers, of.gateways)
			whole := bowline(t, "", "audit", k.trail, "--verify")
			if whole.want(t, 0, "whole: ", ""); kills > 0 {
				whole.want(t, 0, fmt.Sprintf("; %d gateways were killed", kills), "")
			} else if strings.Contains(whole.stdout, "killed") {
				t.Error(whole.stdout)
			}
			if of.sync {
				kills = 0 // nothing may be missing
			}
			k.check(kills)
		})
	}
}

// A killing is a gateway with a trail, its clients, and what they saw.
type killing struct {
	t           *testing.T
	calls       int // that are to be answered
	path, trail string
	token       string
	up          *upRun

	made, answered atomic.Int64
	callers        [8]*caller
}

func (k *killing) begin(sync bool) {
	dir := k.t.TempDir()
	k.path, k.trail = filepath.Join(dir, "mcp.json"), filepath.Join(dir, "audit.jsonl")
	mcpFile(k.t, k.path, "one")
	text, err := os.ReadFile(k.path)
	if err == nil {
		err = os.WriteFile(k.path, fmt.Appendf(text[:len(text)-1], `, "bowline": {"audit": {"file": "audit.jsonl", "sync": %t}}}`, sync), 0o600)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Setenv("XDG_RUNTIME_DIR", shortFolder(k.t))
	k.t.Setenv("XDG_CONFIG_HOME", k.t.TempDir())
	k.token = newUser(k.t, "token", "add", "ada")
	k.up = startUp(k.t, k.path, "--auth", "tokens")
	for i := range k.callers {
		version := []string{protocol.LatestLegacy, protocol.Latest}[i%2]
		to := &streamable.Client{URL: k.up.url, Header: http.Header{"Authorization": {"Bearer " + k.token}}}
		o := client.Options{ProtocolVersion: version, Calls: client.CallOptions{WaitForReady: true}}
		o.Conn.BackoffMin, o.Conn.BackoffMax, o.Conn.Log = 50*time.Millisecond, 100*time.Millisecond, slog.New(slog.DiscardHandler)
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(k.t.Context(), to)
		if err != nil {
			k.t.Fatal(err)
		}
		k.t.Cleanup(func() { session.Close(context.Background()) })
		k.callers[i] = &caller{session: session}
	}
}

// run lets the clients call, kills meanwhile, and returns how often a gateway was killed.
func (k *killing) run(servers, gateways bool) (kills int) {
	at, err := url.Parse(k.up.url)
	if err != nil {
		k.t.Fatal(err)
	}
	var calling sync.WaitGroup
	for _, c := range k.callers {
		calling.Go(func() { c.call(k.t.Context(), k.calls, &k.made, &k.answered) })
	}
	rounds := 2 + k.calls/5000
	if servers && gateways { // in turn
		rounds *= 2
	}
	for round := 1; round <= rounds; round++ {
		for int(k.answered.Load()) < round*k.calls/(rounds+1) {
			<-time.NewTimer(time.Millisecond).C
		}
		if servers && (round%2 == 1 || !gateways) {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(k.path), "one.pid"))
			if pid, wrong := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && wrong == nil { // else it is starting just now
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			continue
		}
		kills++
		k.up.kill()
		k.up = startUpAt(k.t, k.path, at.Host, "--auth", "tokens")
	}
	calling.Wait()
	k.up.end()
	return kills
}

// check compares what the clients saw with the trail. With each of these kills the end of a queue may be missing: for each client the last outcomes before it, and no others.
func (k *killing) check(kills int) {
	recorded, seen, missing := recordsOf(k.t, k.trail), make(map[string]int), 0
	for _, c := range k.callers {
		gaps, inGap := 0, false
		for _, call := range c.ended {
			n := recorded(call)
			if n > 1 {
				k.t.Errorf("%s %s: %d records of a call that has ended as %q", call.name, call.arguments, n, call.how)
			}
			if seen[call.how]++; call.how != sawAnswer && call.how != sawError {
				continue
			}
			if n == 0 {
				missing++
				if !inGap {
					gaps++
				}
				if kills == 0 {
					k.t.Errorf("%s %s: no record of a call that has ended as %q", call.name, call.arguments, call.how)
				}
			}
			inGap = n == 0
		}
		if kills > 0 && gaps > kills {
			k.t.Errorf("the records of a client have %d gaps, and %d gateways were killed", gaps, kills)
		}
	}
	const queue = 4096
	if missing > queue*kills {
		k.t.Errorf("%d records are missing, and %d gateways were killed", missing, kills)
	}
	k.t.Logf("of %d calls %d have no record: %v", k.made.Load(), missing, seen)
}

// recordsOf returns a function that tells how many records there are of a call: those that were passed on are known by the digest of their arguments, and others by their names.
func recordsOf(t *testing.T, trail string) func(saw) int {
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
			all[cmp.Or(r.Arguments, r.Name)]++
		}
	}
	digest := audit.Digest(key)
	return func(call saw) int { return all[digest([]byte(call.arguments))] + all[call.name] }
}
