package server

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/protocol"
)

// A state that another process has kept, or anybody has written, is read or refused. If it is
// read, its parts are within their bounds, and it is the same when it is kept and read again.
//
// Guarantees: G-0074.4
func FuzzKeptState(f *testing.F) {
	for _, state := range []string{
		``, `{}`, `{"v":1}`, `{"v":2}`, `{"v":1,"level":"info","subscriptions":["x://b","x://a","x://b"]}`, `{"v":1,"level":"x"}`,
		`{"v":1e0,"subscriptions":["\u0001\ud800"]}`, `{"v":1,"subscriptions":[""]}`, `{"v":1,"subscriptions":null,"v":1}`, `[[[[`,
		`{"v":1,"subscriptions":["` + strings.Repeat("x", catalog.LongestURI) + `","` + strings.Repeat(`\"`, catalog.LongestURI/2) + `"]}`,
	} {
		f.Add([]byte(state))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		state, err := readKeptState(raw)
		if err != nil {
			if state.Level != "" || state.Subscriptions != nil {
				t.Fatalf("got %+v and %v, want one of both", state, err)
			}
			return
		}
		if len(state.Subscriptions) > mostKeptResource || state.Level != "" && state.Level.Severity() < 0 {
			t.Fatalf("got %+v", state)
		}
		again := state.append(nil)
		if len(again) > mostKept {
			t.Fatalf("%d bytes became %d", len(raw), len(again))
		}
		second, err := readKeptState(again)
		if err != nil || second.Level != state.Level || len(second.Subscriptions) > len(state.Subscriptions) {
			t.Fatalf("got %+v and %v, want %+v", second, err, state)
		}
		fits := len(fmt.Sprintf("%q", state.Subscriptions)) < mostKept/8 // %q is never much shorter than JSON
		if fits && !slices.Equal(second.Subscriptions, state.Subscriptions) {
			t.Fatalf("got %q, want %q", second.Subscriptions, state.Subscriptions)
		}
		if third := second.append(nil); !bytes.Equal(third, again) {
			t.Fatalf("got %s, want %s", third, again)
		}
	})
}

// What is left out of a state that would be too long is no more than necessary: a shorter URI
// that fits is kept.
//
// Guarantees: G-0074.1
func TestLongStatesKeepWhatFits(t *testing.T) {
	long := strings.Repeat("x", catalog.LongestURI)
	state := keptState{Level: protocol.LogInfo, Subscriptions: []string{long[1:] + "1", long[1:] + "2", "x://short"}}
	read, err := readKeptState(state.append(nil))
	if err != nil || !slices.Equal(read.Subscriptions, []string{"x://short", long[1:] + "1"}) || read.Level != protocol.LogInfo {
		t.Errorf("got %d subscriptions and %v", len(read.Subscriptions), err)
	}
}
