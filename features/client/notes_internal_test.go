package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// The schemas that a client remembers are limited in bytes, and are forgotten with
// their tools.
//
// Guarantees: G-0012.4
func TestNotedSchemasAreBounded(t *testing.T) {
	var n toolNotes
	large := json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 1<<20) + `"}`)
	for i := range 10 {
		n.learn([]*protocol.Tool{{Name: fmt.Sprint(i), OutputSchema: large}}, false)
	}
	if n.schemaBytes > maxNotedSchema || len(n.tools) != maxNotedSchema/len(large) {
		t.Errorf("got %d bytes for %d tools", n.schemaBytes, len(n.tools))
	}
	first := n.of("0")
	n.learn([]*protocol.Tool{{Name: "0", OutputSchema: large}}, false)
	if n.of("0") != first {
		t.Error("an equal schema was stored again, want the first one")
	}
	for i := range 10 {
		n.learn([]*protocol.Tool{{Name: fmt.Sprint(i)}}, false)
	}
	if n.schemaBytes != 0 || len(n.tools) != 0 {
		t.Errorf("%d bytes of %d tools are left, want none", n.schemaBytes, len(n.tools))
	}
}
