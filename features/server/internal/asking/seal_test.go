package asking

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func sealerOf(node string) *Sealer {
	secrets := [][]byte{[]byte(strings.Repeat("s", 32))}
	return &Sealer{Audience: "server", Node: node, Keyring: &Keyring{Secrets: func() [][]byte { return secrets }}}
}

// A state opens for the same call, however the client writes that there are no arguments. No two calls are one because their names together are
// the same text.
//
// Guarantees: G-0031.4
func TestWhichCallAStateIsFor(t *testing.T) {
	none := func(arguments any) Subject { return Subject{"m", "t", arguments, "ada"} }
	for name, test := range map[string]struct {
		sealed, opened Subject
		same           bool
	}{
		"null":                    {none(nil), none(json.RawMessage(`null`)), true},
		"an empty object":         {none(json.RawMessage(`null`)), none(json.RawMessage(`{ }`)), true},
		"no text":                 {none(json.RawMessage(`{}`)), none(json.RawMessage(nil)), true},
		"no texts of a prompt":    {none(map[string]string{}), none(nil), true},
		"one argument":            {none(nil), none(json.RawMessage(`{"a":null}`)), false},
		"a part of the name":      {Subject{"m", "t:u", nil, "ada"}, Subject{"m:t", "u", nil, "ada"}, false},
		"the user and the name":   {Subject{"m", "ada", nil, "t"}, Subject{"m", "t", nil, "ada"}, false},
		"the method and the name": {Subject{"m", "t", nil, "ada"}, Subject{"t", "m", nil, "ada"}, false},
	} {
		later := time.Now().Add(time.Hour).Unix()
		sealed, err := sealerOf("").Seal(test.sealed, &State{Until: later, End: later})
		if err != nil {
			t.Fatal(err)
		}
		_, err = sealerOf("").Open(test.opened, sealed)
		var refused *StateError
		var fault *jsonrpc.Error
		switch {
		case test.same && err != nil:
			t.Errorf("%s: got %v, want that it opens", name, err)
		case !test.same && (!errors.As(err, &refused) || refused.StateRefused() != "invalid or expired requestState" ||
			!errors.As(err, &fault) || !protocol.IsInvalidParams(fault, protocol.ReasonRequestState)):
			t.Errorf("%s: got %v, want that it is refused, and why", name, err)
		}
	}
}

// A state opens until its question or its call expires, whichever comes first. It names the node only while the call is bound to that.
//
// Guarantees: G-0031.4
func TestUntilWhenAStateOpens(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		about, sealer := Subject{Method: "m"}, sealerOf("node")
		for _, lives := range [][2]int64{{10, 20}, {20, 10}} {
			begun := time.Now()
			st := &State{Until: begun.Unix() + lives[0], End: begun.Unix() + lives[1], Process: "p"}
			bound, err := sealer.Seal(about, st)
			if err != nil || !strings.HasPrefix(bound, "1.node.") {
				t.Fatalf("got %q, %v, want a state of the node", bound, err)
			}
			st.Process = ""
			if free, err := sealer.Seal(about, st); err != nil || strings.Contains(free, "node") {
				t.Errorf("got %q, %v, want a state of no node", free, err)
			}
			for _, at := range []time.Duration{9, 10} {
				timer := time.NewTimer(time.Until(begun.Add(at * time.Second)))
				<-timer.C
				if _, err := sealer.Open(about, bound); (err == nil) != (at == 9) {
					t.Errorf("%v: after %d seconds: got %v, want that it opens before the tenth", lives, at, err)
				}
			}
		}
	})
}
