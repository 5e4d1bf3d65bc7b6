package command

import (
	"net"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol"
)

// describedTool is the schema of the one tool of the peer "described".
const describedTool = `{"type": "object", "required": ["unit", "to"], "properties": {
	"note": {"type": "string", "description": "what it is for\nand more"},
	"to": {"type": "string", "title": "Who gets it"},
	"unit": {"type": "string", "enum": ["euro", "cent"]},
	"count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
	"fast": {"type": "boolean"},
	"tags": {"type": "array", "items": {"type": "string"}}}}`

// TestOneToolIsShown checks that a tool is shown with the arguments that it takes, and that the
// example is a call of it.
func TestOneToolIsShown(t *testing.T) {
	o := bowline(t, "", withPeer(t, "described", "tools", "tool")...)
	o.want(t, 0, `tool

Arguments:
  to     string   required  Who gets it
  unit   string   required  one of: euro, cent
  note   string   optional  what it is for
  count  integer  optional  minimum: 1; maximum: 9; default: 3
  fast   boolean  optional
  tags   array    optional

Example:
  bowline call tool to=TO unit=euro --command '`, "")
	o = bowline(t, "", withBundled(t, "tools", "add", "--json")...)
	var tool protocol.Tool
	if o.want(t, 0, "", ""); protocol.Unmarshal([]byte(o.stdout), &tool) != nil || tool.Name != "add" || len(tool.InputSchema) == 0 {
		t.Errorf("not the tool as one document:\n%s", o.stdout)
	}
	bowline(t, "", withBundled(t, "tools", "ad")...).want(t, process.ExitUsage, "", `no tool "ad"; did you mean add?`)
	bowline(t, "", withBundled(t, "tools", "crash")...).want(t, 0, "  bowline call crash --command", "")
}

// TestToolsAreListedWithTheirArguments checks that the list has arguments, as far as there is room.
func TestToolsAreListedWithTheirArguments(t *testing.T) {
	bowline(t, "", withBundled(t, "tools")...).want(t, 0, "slow seconds=NUMBER [steps=INTEGER]  Takes", "")
	bowline(t, "", withPeer(t, "described", "tools")...).want(t, 0, "tool to=STRING unit=STRING [note=STRING] ...", "")
}

// TestCompletionOfArguments checks the keys that are not given yet, and the values of an enum or
// a boolean.
func TestCompletionOfArguments(t *testing.T) {
	for typed, want := range map[string]string{
		"tool|":           "to=\tWho gets it\nunit=\tone of: euro, cent\nnote=\twhat it is for\ncount=\tminimum: 1; maximum: 9; default: 3\nfast=\ntags=\n:6\n", // no space, no file names
		"tool|to=x|u":     "unit=\tone of: euro, cent\nnote=\twhat it is for\ncount=\tminimum: 1; maximum: 9; default: 3\nfast=\ntags=\n:6\n",
		"tool|unit=":      "unit=euro\nunit=cent\n:4\n",
		"tool|fast=t":     "fast=true\nfast=false\n:4\n",
		"tool|note=":      ":4\n",
		"tool|tags:=[]|x": "to=\tWho gets it\nunit=\tone of: euro, cent\nnote=\twhat it is for\ncount=\tminimum: 1; maximum: 9; default: 3\nfast=\n:6\n",
	} {
		o := bowline(t, "", append(withPeer(t, "described", "__complete", "call"), strings.Split(typed, "|")...)...)
		if o.want(t, 0, "", ""); o.stdout != want {
			t.Errorf("%s: %q, want %q", typed, o.stdout, want)
		}
	}
}

// TestFailuresOfThisMachine checks status 5: neither the command line nor a server is wrong.
func TestFailuresOfThisMachine(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	bowline(t, "", "serve", "--http", address).want(t, process.ExitFailed, "", "--http: listen tcp "+address)
	bowline(t, "", "serve", "--stdio", "--metrics", address).want(t, process.ExitFailed, "", "--metrics: listen tcp "+address)
}
