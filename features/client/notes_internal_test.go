package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// The schemas that a client remembers are limited in bytes, and are forgotten with
// their tools.
//
// Guarantees: G-0012.4, G-0072.1
func TestNotedSchemasAreBounded(t *testing.T) {
	var n toolNotes
	large := json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 1<<20) + `"}`)
	for i := range 10 {
		n.learn([]*protocol.Tool{{Name: fmt.Sprint(i), OutputSchema: large}}, false)
	}
	kept := 0
	for i := range 10 {
		if output := n.of(fmt.Sprint(i)).output; output.size() > 0 {
			kept++
		} else if _, err := output.get(t.Context()); !errors.Is(err, errManySchemas) {
			t.Errorf("tool %d: its schema is not kept, and get returns %v, want %v", i, err, errManySchemas)
		}
	}
	if n.schemaBytes > maxNotedSchema || kept != maxNotedSchema/len(large) || len(n.tools) != 10 {
		t.Errorf("got %d bytes of %d schemas of %d tools, want %d schemas of 10", n.schemaBytes, kept, len(n.tools), maxNotedSchema/len(large))
	}
	first, last := n.of("0"), n.of("9")
	n.learn([]*protocol.Tool{{Name: "0", OutputSchema: large}}, false)
	n.learn([]*protocol.Tool{{Name: "9", OutputSchema: large}}, false)
	if n.of("0") != first || n.of("9") != last {
		t.Error("an equal schema was stored again, want the first one")
	}
	larger := json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", maxNotedSchema) + `"}`)
	n.learn([]*protocol.Tool{{Name: "0", OutputSchema: larger}}, false)
	if _, err := n.of("0").output.get(t.Context()); !errors.Is(err, errManySchemas) {
		t.Errorf("a tool whose new schema is too large is checked against the earlier one, want %v", errManySchemas)
	}
	for i := range 10 {
		n.learn([]*protocol.Tool{{Name: fmt.Sprint(i)}}, false)
	}
	if n.schemaBytes != 0 || len(n.tools) != 0 {
		t.Errorf("%d bytes of %d tools are left, want none", n.schemaBytes, len(n.tools))
	}
}

// Of the schemas that a page lists under one name, only the one that is kept is told.
//
// Guarantees: G-0072.4
func TestOnlyKeptSchemasAreRefused(t *testing.T) {
	var n toolNotes
	var page []*protocol.Tool
	for i := range 100 {
		page = append(page, &protocol.Tool{Name: "t", OutputSchema: json.RawMessage(fmt.Sprintf(`{"$dynamicRef":"#%d"}`, i%2))})
	}
	refused := n.learn(page, false)
	if len(refused) != 1 || refused[0].tool != "t" || refused[0].output != n.of("t").output {
		t.Fatalf("got %d refusals, want one of the last schema", len(refused))
	}
	if _, err := refused[0].output.get(t.Context()); !errors.Is(err, schema.ErrReference) || !strings.Contains(err.Error(), "#1") {
		t.Errorf("got %v, want %v of the last schema", err, schema.ErrReference)
	}
	page = append(page, &protocol.Tool{Name: "t", OutputSchema: json.RawMessage(`{"enum":["$dynamicRef"]}`)})
	if refused := n.learn(page, false); len(refused) != 0 {
		t.Errorf("got %d refusals, want none of a schema that is not kept", len(refused))
	}
}
