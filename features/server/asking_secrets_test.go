package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// changingSecrets are the secrets of one node, which change while it runs.
type changingSecrets struct{ now atomic.Pointer[[][]byte] }

func (c *changingSecrets) set(secrets ...[]byte) { c.now.Store(&secrets) }
func (c *changingSecrets) get() [][]byte         { return *c.now.Load() }

func secretOf(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// Two nodes replace their secret while calls go on, one node after the other: add the new one
// behind the old one, move it to the front, and remove the old one. No call fails.
//
// Guarantees: G-0031.19
func TestSecretsAreReplacedWhileCallsGoOn(t *testing.T) {
	old, young := secretOf(1), secretOf(2)
	s, nodes := new(shop), []*changingSecrets{new(changingSecrets), new(changingSecrets)}
	var peers []*rawPeer
	for _, secrets := range nodes {
		secrets.set(old)
		peers = append(peers, dial(t, s.server(server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: secrets.get}})))
	}
	var open []string
	finish := func() {
		t.Helper()
		for i, state := range open {
			if got := peers[i%2].round("one_reruns", retryParams(state, yes)); !strings.Contains(got.Text, "confirmed") {
				t.Errorf("state %d at node %d: got %+v, want %q in it", i, i%2, got, "confirmed")
			}
		}
		open = nil
	}
	for _, secrets := range [][][]byte{{old}, {old, young}, {young, old}} {
		for _, node := range nodes {
			node.set(secrets...)
			for range 2 {
				for _, w := range peers {
					open = append(open, w.round("one_reruns", "").State)
				}
			}
		}
		finish()
	}
	stale := peers[0].round("one_reruns", "").State // sealed with the new one
	nodes[1].set(old)
	if got := peers[1].round("one_reruns", retryParams(stale, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
		t.Errorf("without the new secret: got %+v, want the error %d with %q", got, jsonrpc.CodeInvalidParams, "invalid_request_state")
	}
	nodes[1].set(young)
	open = []string{stale}
	finish()
	first := peers[0].round("one_reruns", "").State
	secret := secretOf(3)
	nodes[0].set(secret)
	same := peers[0].round("one_reruns", "").State
	copy(secret, young) // the same slice with other bytes is another secret
	if got := peers[0].round("one_reruns", retryParams(same, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
		t.Errorf("a secret that was overwritten: got %+v, want the error %d", got, jsonrpc.CodeInvalidParams)
	}
	if got := peers[0].round("one_reruns", retryParams(first, yes)); !strings.Contains(got.Text, "confirmed") {
		t.Errorf("a secret that was overwritten: got %+v, want %q in it", got, "confirmed")
	}
}

// While the secrets cannot be used, calls that ask fail with an internal error that names no
// detail, and the reason is logged once. A state is not used up. When the secrets are valid
// again, calls work.
//
// Guarantees: G-0031.19
func TestSecretsThatCannotBeUsed(t *testing.T) {
	for name, test := range map[string]struct {
		secrets [][]byte
		panics  bool
		log     string
	}{
		"none":        {nil, false, "there is no secret"},
		"empty list":  {[][]byte{}, false, "there is no secret"},
		"short":       {[][]byte{secretOf(1), secretOf(2)[:31]}, false, "31 bytes"},
		"short first": {[][]byte{secretOf(2)[:31], secretOf(1)}, false, "31 bytes"},
		"empty":       {[][]byte{{}}, false, "0 bytes"},
		"a panic":     {nil, true, "there is no secret"},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			var log bytes.Buffer
			secrets, panicking := new(changingSecrets), new(atomic.Bool)
			secrets.set(secretOf(1))
			o, panics := reporting(server.Options{})
			o.Conn.Log = slog.New(slog.NewTextHandler(&log, nil))
			o.Asking.Secrets = func() [][]byte {
				if panicking.Load() {
					panicBroken()
				}
				return secrets.get()
			}
			s := new(shop)
			w := dial(t, s.server(o))
			states := map[string]string{}
			for _, tool := range []string{"one_waits", "one_reruns"} {
				states[tool] = w.round(tool, "").State
			}
			s.runs.Store(0)
			secrets.set(test.secrets...)
			panicking.Store(test.panics)
			var where []string
			for tool, state := range states {
				for what, got := range map[string]round{"first round": w.round(tool, ""), "second round": w.round(tool, retryParams(state, yes))} {
					if !got.Error.is(jsonrpc.CodeInternalError, "the server has no valid secret") || strings.Contains(got.Error.Message, "bytes") {
						t.Errorf("%s, %s of %s: got %+v, want the error %d that names no detail", name, what, tool, got, jsonrpc.CodeInternalError)
					}
					where = append(where, "Asking.Secrets")
				}
			}
			if !test.panics {
				where = nil
			}
			wantPanics(t, panics, where...)
			if lines := strings.Count(log.String(), "calls that ask"); lines != 1 || !strings.Contains(log.String(), test.log) {
				t.Errorf("%s: the log has %d lines, want one with %q: %s", name, lines, test.log, &log)
			}
			secrets.set(secretOf(2), secretOf(1))
			panicking.Store(false)
			for tool, state := range states {
				if got := w.round(tool, retryParams(state, yes)); !strings.Contains(got.Text, "confirmed") {
					t.Errorf("%s, %s: got %+v, want %q in it", name, tool, got, "confirmed")
				}
			}
		})
	}
}

// Secrets may change at any moment, also while many calls seal and open states.
//
// Guarantees: G-0031.19
func TestSecretsChangeDuringCalls(t *testing.T) {
	secrets := new(changingSecrets)
	secrets.set(secretOf(0))
	s := server.New(protocol.Implementation{Name: "s"}, server.Options{Asking: server.AskingOptions{Secrets: secrets.get}})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "confirmed", server.Confirm(ctx, "Sure?")
	}, server.Asks(server.Reruns, forms))
	var group sync.WaitGroup
	for range 4 {
		w := dial(t, s)
		group.Go(func() {
			for range 50 {
				w.link.Grant(0, 2)
				if got := w.round("t", retryParams(w.round("t", "").State, yes)); !strings.Contains(got.Text, "confirmed") {
					t.Errorf("got %+v, want %q in it", got, "confirmed")
				}
			}
		})
	}
	group.Go(func() {
		for i := range byte(100) {
			secrets.set(allSecrets(i)...)
		}
	})
	group.Wait()
}

// allSecrets returns the secrets 0 to last, the last one first.
func allSecrets(last byte) (all [][]byte) {
	for i := range last + 1 {
		all = append(all, secretOf(last-i))
	}
	return all
}
