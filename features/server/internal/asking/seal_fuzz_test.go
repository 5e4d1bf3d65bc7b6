package asking

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// Only a sealed text opens, and only for the call that it was sealed for.
//
// Guarantees: G-0031.4
func FuzzSeal(f *testing.F) {
	secrets := [][]byte{[]byte(strings.Repeat("s", 32))}
	sealer := &Sealer{Audience: "server", Node: "node", Keyring: &Keyring{Secrets: func() [][]byte { return secrets }}}
	sealed, err := sealer.Seal(Subject{protocol.MethodCallTool, "t", json.RawMessage(`{"a":1}`), "ada"}, &State{Own: json.RawMessage(`"own"`), End: 1 << 40, Until: 1 << 40})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed, "ada", "t", `{"a":1}`)
	f.Add(sealed, "ada", "t", `{ "a" : 1.0 }`)
	f.Add(sealed, "eve", "t", `{"a":1}`)
	f.Add(sealed[:20], "", "", ``)
	f.Add("1.node."+sealed[2:], "ada", "t", `{"a":1}`)
	f.Add("1.", "", "", `null`)
	f.Add("1."+strings.Repeat("A", 400), "ada", "u", `[`)
	f.Fuzz(func(t *testing.T, text, user, name, arguments string) {
		about := Subject{protocol.MethodCallTool, name, json.RawMessage(arguments), user}
		if st, err := sealer.Open(about, text); err == nil && (user != "ada" || name != "t" || string(st.Own) != `"own"` || st.End != 1<<40) { // the corpus may contain a text that another process has sealed
			t.Fatalf("%q opened for %s, %s, want an error", text, user, name)
		}
		own, err := protocol.Marshal(arguments)
		if err != nil {
			return
		}
		later := time.Now().Add(time.Hour).Unix()
		mine, err := sealer.Seal(about, &State{Own: own, Call: "c", Until: later, End: later})
		if err != nil {
			return // the arguments are not JSON, or too long
		}
		if st, err := sealer.Open(about, mine); err != nil || string(st.Own) != string(own) || st.Call != "c" {
			t.Fatalf("%q does not open: got %+v, %v", mine, st, err)
		}
		waiting, err := sealer.Seal(about, &State{Process: "p", Until: later, End: later})
		if st, openErr := sealer.Open(about, waiting); err != nil || openErr != nil || st.Process != "p" || st.Node != "node" || !strings.HasPrefix(waiting, "1.node.") {
			t.Fatalf("%q does not open as a state of the node: got %+v, %v", waiting, st, errors.Join(err, openErr))
		}
		for what, open := range map[string]func() (*State, error){
			"another node":             func() (*State, error) { return sealer.Open(about, "1.other"+waiting[len("1.node"):]) },
			"no node":                  func() (*State, error) { return sealer.Open(about, "1"+waiting[len("1.node"):]) },
			"a node, which it had not": func() (*State, error) { return sealer.Open(about, "1.node"+mine[len("1"):]) },
			"another user": func() (*State, error) {
				return sealer.Open(Subject{about.Method, name, about.Arguments, user + "x"}, mine)
			},
			"another method": func() (*State, error) {
				return sealer.Open(Subject{protocol.MethodGetPrompt, name, about.Arguments, user}, mine)
			},
			"another name": func() (*State, error) {
				return sealer.Open(Subject{about.Method, name + "x", about.Arguments, user}, mine)
			},
			"other arguments": func() (*State, error) {
				return sealer.Open(Subject{about.Method, name, json.RawMessage(`{"of":"another call"}`), user}, mine)
			},
		} {
			if _, err := open(); err == nil && (what != "other arguments" || !strings.Contains(arguments, "another call")) {
				t.Fatalf("%q opened for %s", mine, what)
			}
		}
	})
}

// As long as the secrets are the same, byte for byte, their keys are not derived again, and
// nothing is allocated.
//
// Guarantees: G-0031.19
func TestKeysAreDerivedOnce(t *testing.T) {
	secrets := [][]byte{bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 40)}
	k := &Keyring{Secrets: func() [][]byte { return secrets }}
	now := func() *derivedKeys {
		if keys, err := k.now(); len(keys) != len(secrets) || err != nil {
			t.Fatalf("got %d keys and %v, want %d", len(keys), err, len(secrets))
		}
		return k.latest.Load()
	}
	first := now()
	secrets = [][]byte{bytes.Clone(secrets[0]), bytes.Clone(secrets[1])}
	if now() != first {
		t.Error("the keys of equal secrets were derived again")
	}
	if allocations := testing.AllocsPerRun(100, func() { now() }); allocations > 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
	for _, change := range []func(){
		func() { secrets[1][39]++ },
		func() { secrets = secrets[:1] },
		func() { secrets = append(secrets, secrets[0]) },
		func() { secrets[0] = append(secrets[0], 0) },
		func() { secrets[0][0]++ }, // in place: what was derived is of a copy
	} {
		before := now()
		change()
		if now() == before {
			t.Error("the keys of other secrets were not derived")
		}
	}
}
