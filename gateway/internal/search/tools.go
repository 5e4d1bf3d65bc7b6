package search

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/protocol"
)

// The tools of the endpoint.
const (
	findTools        = "find_tools"
	describeTool     = "describe_tool"
	callReadOnlyTool = "call_read_only_tool"
	callTool         = "call_tool"
)

// ownTools are in the order of their names.
var ownTools = []json.RawMessage{
	json.RawMessage(`{"name":"call_read_only_tool","description":"Call a tool that only reads (readOnly is true in find_tools). The result is that of the tool.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"As find_tools has written it"},"arguments":{"type":"object","description":"What the schema of the tool says"}},"required":["name"]},"annotations":{"readOnlyHint":true}}`),
	json.RawMessage(`{"name":"call_tool","description":"Call any tool. It may change something. The result is that of the tool.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"As find_tools has written it"},"arguments":{"type":"object","description":"What the schema of the tool says"}},"required":["name"]},"annotations":{"readOnlyHint":false,"destructiveHint":true}}`),
	json.RawMessage(`{"name":"describe_tool","description":"Read the whole definition of a tool: its description and the JSON schema of its arguments.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"As find_tools has written it"}},"required":["name"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`),
	json.RawMessage(`{"name":"find_tools","description":"Find tools by what they do. Call this first: there are many tools, and only those that it finds are listed. Use describe_tool before you call one whose parameters are not clear.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"A few words, such as: create github issue"},"limit":{"type":"integer","minimum":1,"maximum":50,"description":"How many tools to list. Default: 10"}},"required":["query"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`),
}

// A definition is what of a tool is searched for and shown. What is wrong in it is left out: the tool can be called nevertheless.
type definition struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	InputSchema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	} `json:"inputSchema"`
}

func decode(raw json.RawMessage) (d definition) {
	if protocol.Unmarshal(raw, &d) != nil {
		return definition{}
	}
	return d
}

func (d definition) parameters() []string {
	names := slices.Sorted(maps.Keys(d.InputSchema.Properties))
	return names[:min(len(names), mostParameters)]
}

// fitting leaves out the names that a list of what was found has no room for, and says that it does: describe_tool has them. A part of a name is none.
func fitting(names []string) []string {
	room := longestNames
	for i, name := range names {
		if room -= len(name); room < 0 {
			return append(names[:i:i], "…")
		}
	}
	return names
}

// beginning returns the first part of a description.
func beginning(description string) string {
	if len(description) <= longestSummary {
		return description
	}
	end := longestSummary
	for !utf8.RuneStart(description[end]) {
		end--
	}
	return description[:end] + "…"
}

func text(content string) (json.RawMessage, error) {
	return protocol.Marshal(&protocol.CallToolResult{Content: protocol.Contents{protocol.Text(content)}})
}

// failed is the result of a call that is wrong in a way which a model can mend.
func failed(format string, args ...any) (json.RawMessage, error) {
	result := &protocol.CallToolResult{Content: protocol.Contents{protocol.Text(fmt.Sprintf(format, args...))}, IsError: true}
	return protocol.Marshal(result)
}
