package protocol_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestToolMode(t *testing.T) {
	for meta, want := range map[string]protocol.ToolMode{
		`{"io.github.bowline-mcp/mode":"stateful"}`:   protocol.Stateful,
		`{"io.github.bowline-mcp/mode":"stateless"}`:  protocol.Stateless,
		`{"io.github.bowline-mcp/mode":"sometimes"}`:  "",
		`{"io.github.bowline-mcp/mode":""}`:           "",
		`{"io.github.bowline-mcp/mode":null}`:         "",
		`{"io.github.bowline-mcp/mode":["stateful"]}`: "",
		`{"mode":"stateful"}`:                         "",
		`{}`:                                          "",
	} {
		var tool protocol.Tool
		if err := protocol.Unmarshal([]byte(`{"name":"a","inputSchema":{},"_meta":`+meta+`}`), &tool); err != nil {
			t.Fatal(err)
		}
		if got := tool.Mode(); got != want {
			t.Errorf("%s: got %q, want %q", meta, got, want)
		}
	}
}
