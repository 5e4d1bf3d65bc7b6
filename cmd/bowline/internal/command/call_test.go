package command

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol"
)

func TestToolsListsAllPages(t *testing.T) {
	o := bowline(t, "", withPeer(t, "odd", "tools")...)
	o.want(t, 0, "hostile", "")
	if lines := strings.Count(o.stdout, "\n"); lines != 5 {
		t.Errorf("%d lines, want one for each of 5 tools:\n%s", lines, o.stdout)
	}
	if strings.ContainsAny(o.stdout, "\x1b") || strings.Contains(o.stdout, "more") {
		t.Errorf("a description is not one printable line:\n%s", o.stdout)
	}
}

func TestToolsAsJSONIsOneDocument(t *testing.T) {
	o := bowline(t, "", withBundled(t, "tools", "--json")...)
	o.want(t, 0, "", "")
	var list protocol.ListToolsResult
	if err := protocol.Unmarshal([]byte(o.stdout), &list); err != nil {
		t.Fatalf("standard output is not one document: %v", err)
	}
	if len(list.Tools) != 6 || len(list.Tools[0].InputSchema) == 0 {
		t.Errorf("the document does not hold 6 tools with their schemas:\n%s", o.stdout)
	}
}

// TestCallPrintsText checks that standard output contains only the text.
func TestCallPrintsText(t *testing.T) {
	for _, c := range []struct {
		name, stdin string
		args        []string
		stdout      string
	}{
		{"pair", "", []string{"echo", "message=hi"}, "hi\n"},
		{"text that looks like a number", "", []string{"echo", "message=007"}, "007\n"},
		{"empty text", "", []string{"echo", "message="}, ""},
		{"text that ends its line", "", []string{"echo", "message=hi\n"}, "hi\n"},
		{"a sign of equality in a value", "", []string{"echo", "message=a=b"}, "a=b\n"},
		{"numbers", "", []string{"add", "a=1", "b=2.5"}, `{"sum":3.5}` + "\n"},
		{"forced JSON", "", []string{"echo", `message:="hi"`}, "hi\n"},
		{"JSON object", "", []string{"echo", `{"message": "hi"}`}, "hi\n"},
		{"standard input", `{"message": "hi"}`, []string{"echo", "-"}, "hi\n"},
		{"slow", "", []string{"slow", "seconds=0", "steps=3"}, "took 0s in 3 steps\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := bowline(t, c.stdin, withBundled(t, append([]string{"call"}, c.args...)...)...)
			if o.want(t, 0, "", ""); o.stdout != c.stdout {
				t.Errorf("standard output is %q, want %q", o.stdout, c.stdout)
			}
		})
	}
}

func TestCallPrintsBigText(t *testing.T) {
	o := bowline(t, "", withBundled(t, "call", "big", "bytes=8388608")...)
	if o.want(t, 0, "0123456789abcdef", ""); len(o.stdout) != 8<<20+1 {
		t.Errorf("%d bytes, want 8 MiB and a line break", len(o.stdout))
	}
}

// TestCallShowsProgress checks that progress is printed on standard error, in lines,
// because that is not a terminal here. At least the last progress is printed.
func TestCallShowsProgress(t *testing.T) {
	o := bowline(t, "", withBundled(t, "call", "slow", "seconds=0.01", "steps=2")...)
	o.want(t, 0, "took 10ms in 2 steps\n", "progress: 2 of 2: step 2 of 2\n")
}

func TestCallPrintsEveryKindOfContent(t *testing.T) {
	o := bowline(t, "", withPeer(t, "odd", "call", "kinds")...)
	want := `a text
[image: image/png, 5 bytes]
[audio: audio/wav, 3 bytes]
[resource: file:///a, text/plain]
the words
[resource: file:///b, x/y, 2 bytes]
[resource link: sea, file:///c]
{"type":"smell","of":"tar"}
`
	if o.want(t, 0, "", ""); o.stdout != want {
		t.Errorf("standard output is\n%s\nwant\n%s", o.stdout, want)
	}
}

// TestCallPrintsStructuredContent checks that structured content is printed unchanged if
// there is no text.
func TestCallPrintsStructuredContent(t *testing.T) {
	o := bowline(t, "", withPeer(t, "odd", "call", "structured")...)
	o.want(t, 0, `{"exact":12345678901234567890}`+"\n", "")
}

func TestCallAsJSONPrintsTheWholeResult(t *testing.T) {
	for _, c := range []struct {
		tool, argument string
		status         int
		isError        bool
	}{
		{"echo", "message=hi", 0, false},
		{"fail", "message=hi", process.ExitToolFailed, true},
	} {
		o := bowline(t, "", withBundled(t, "call", c.tool, c.argument, "--json")...)
		o.want(t, c.status, "", "")
		var result protocol.CallToolResult
		if err := json.Unmarshal([]byte(o.stdout), &result); err != nil {
			t.Fatalf("standard output is not one document: %v\n%s", err, o.stdout)
		}
		if result.IsError != c.isError || result.Content.Text() != "hi" {
			t.Errorf("%s: the result is incomplete: %s", c.tool, o.stdout)
		}
	}
}

// TestCallOfARefusedSchema checks that the arguments are sent unchecked, and that the user learns of it.
func TestCallOfARefusedSchema(t *testing.T) {
	for peer, why := range map[string]string{
		"endless": "schema: refers to itself without end", "foreign": "schema: unsupported dialect: ", "unclear": "schema: ",
		"remote": `schema: unsupported reference: $ref "https://example.com/n" is in another document, which is not fetched`,
	} {
		o := bowline(t, "", withPeer(t, peer, "call", "tool", "n=1")...)
		o.want(t, 0, "called\n", `bowline: warning: tool "tool": only the server checks the arguments: `+why)
	}
	if o := bowline(t, "", withBundled(t, "call", "echo", "message=hi")...); strings.Contains(o.stderr, "warning") {
		t.Errorf("a warning about a schema that is not refused: %s", o.stderr)
	}
}

// TestToolsNamesRefusedSchemas checks that a tool whose schemas are refused is listed, with a warning for each that says why.
func TestToolsNamesRefusedSchemas(t *testing.T) {
	for _, args := range [][]string{{"tools"}, {"tools", "tool"}, {"tools", "--json"}} {
		o := bowline(t, "", withPeer(t, "remote", args...)...)
		o.want(t, 0, "tool", `bowline: warning: tool "tool": its input schema is refused: schema: unsupported reference: $ref "https://example.com/n" is in another document`)
		o.want(t, 0, "tool", `bowline: warning: tool "tool": its output schema is refused: schema: unsupported reference: $dynamicRef "#node": use $ref`+"\n")
	}
	if o := bowline(t, "", withBundled(t, "tools")...); strings.Contains(o.stderr, "warning") {
		t.Errorf("a warning about a schema that is not refused: %s", o.stderr)
	}
}

// TestCallWithoutASchemaForKeys checks that values are text unless := is used.
func TestCallWithoutASchemaForKeys(t *testing.T) {
	o := bowline(t, "", withPeer(t, "odd", "call", "arguments", "a=1", "b:=[1, null]")...)
	o.want(t, 0, "", "")
	var got struct {
		A string
		B []any
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.A != "1" || len(got.B) != 2 {
		t.Errorf("the server has got %s (%v)", o.stdout, err)
	}
}

func TestServerGetsItsEnvironmentAndDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	args := withPeer(t, "odd", "call", "surroundings", "--env", "GREETING=a,b=c", "--cwd", dir)
	bowline(t, "", args...).want(t, 0, dir+" a,b=c\n", "")
}

func TestVerboseShowsWhatTheServerLogs(t *testing.T) {
	args := withBundled(t, "call", "crash", "status=0")
	bowline(t, "", append(args, "--verbose")...).want(t, process.ExitCallFailed, "", "bowline: crash: ending with status 0, as asked\nbowline: tools/call failed")
}

func TestCompletionOfToolNames(t *testing.T) {
	o := bowline(t, "", append(withBundled(t, "__complete", "call"), "")...)
	o.want(t, 0, "echo\tAnswers with the message it is given.\n", "")
	if !strings.HasSuffix(o.stdout, ":4\n") { // no file names
		t.Errorf("the directive is not 4:\n%s", o.stdout)
	}
}

func TestCompletionWithoutACommandCompletesNothing(t *testing.T) {
	if o := bowline(t, "", "__complete", "call", ""); o.status != 0 || o.stdout != ":4\n" {
		t.Errorf("status %d, standard output %q", o.status, o.stdout)
	}
}

func TestVersion(t *testing.T) {
	sub, flag := bowline(t, "", "version"), bowline(t, "", "--version")
	if sub.want(t, 0, runtime.Version()+")\n", ""); sub.stdout != flag.stdout {
		t.Errorf("`version` prints %q, `--version` %q", sub.stdout, flag.stdout)
	}
}

// TestHelpTeaches checks that the help of every command has examples.
func TestHelpTeaches(t *testing.T) {
	for _, name := range []string{"tools", "call", "serve", "version"} {
		bowline(t, "", name, "--help").want(t, 0, "Examples:\n", "")
	}
	bowline(t, "", "--help").want(t, 0, "130   interrupted", "")
}
