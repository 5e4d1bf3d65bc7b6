package command

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

func TestResources(t *testing.T) {
	o := bowline(t, "", withPeer(t, "library", "resources")...)
	if o.want(t, 0, "", ""); o.stdout != "book://cover      cover\nbook://moby       a whale\nbook://shelf/{n}  shelf\n" && o.stdout != "book://moby       a whale\nbook://cover      cover\nbook://shelf/{n}  shelf\n" {
		t.Errorf("standard output is\n%s", o.stdout)
	}
	o = bowline(t, "", withPeer(t, "library", "resources", "--json")...)
	o.want(t, 0, "", "")
	var document struct {
		Resources []*protocol.Resource         `json:"resources"`
		Templates []*protocol.ResourceTemplate `json:"resourceTemplates"`
	}
	if err := protocol.Unmarshal([]byte(o.stdout), &document); err != nil || len(document.Resources) != 2 || len(document.Templates) != 1 {
		t.Errorf("the document has %d resources and %d templates: %v\n%s", len(document.Resources), len(document.Templates), err, o.stdout)
	}
}

// TestReadWritesContents checks that contents are printed unchanged.
func TestReadWritesContents(t *testing.T) {
	for uri, want := range map[string]string{
		"book://moby":    "Call me \x1b[31mIshmael",
		"book://cover":   "\x89P\x00\xff",
		"book://shelf/7": "shelf 7",
	} {
		o := bowline(t, "", withPeer(t, "library", "read", uri)...)
		if o.want(t, 0, "", ""); o.stdout != want {
			t.Errorf("%s is %q, want %q", uri, o.stdout, want)
		}
	}
	bowline(t, "", withPeer(t, "library", "read", "book://moby", "--json")...).want(t, 0, `"uri": "book://moby"`, "")
	bowline(t, "", withPeer(t, "library", "read", "book://none")...).want(t, process.ExitCallFailed, "", "bowline: resources/read failed")
}

func TestPrompts(t *testing.T) {
	bowline(t, "", withPeer(t, "library", "prompts")...).want(t, 0, "greeting name=TEXT [language=TEXT]  greets\n", "")
	bowline(t, "", withPeer(t, "library", "prompts", "--json")...).want(t, 0, `"name": "greeting"`, "")
}

func TestPrompt(t *testing.T) {
	o := bowline(t, "", withPeer(t, "library", "prompt", "greeting", "name=7", "language=en")...)
	if o.want(t, 0, "", ""); o.stdout != "user:\n  Hello 7\n  in en\n" {
		t.Errorf("standard output is %q", o.stdout)
	}
	bowline(t, "", withPeer(t, "library", "prompt", "greeting", "name=x", "--json")...).want(t, 0, `"role": "user"`, "")
	o = bowline(t, "", withPeer(t, "library", "prompt", "greeting")...)
	o.want(t, process.ExitUsage, "", `argument "name" is missing`)
	o.want(t, process.ExitUsage, "", "It takes: bowline prompt greeting name=TEXT [language=TEXT]")
	bowline(t, "", withPeer(t, "library", "prompt", "greetings")...).want(t, process.ExitUsage, "", `no prompt "greetings"; did you mean greeting?`)
}

func TestComplete(t *testing.T) {
	o := bowline(t, "", withPeer(t, "library", "complete", "greeting", "language=e", "name=dutch")...)
	if o.want(t, 0, "", ""); o.stdout != "english\ndutch\n1\n" {
		t.Errorf("standard output is %q", o.stdout)
	}
	bowline(t, "", withPeer(t, "library", "complete", "greeting", "language=e", "--json")...).want(t, 0, `"values": [`, "")
	bowline(t, "", withPeer(t, "library", "complete", "book://none/{n}", "n=1")...).want(t, process.ExitCallFailed, "", "completion/complete failed")
}

func TestInspect(t *testing.T) {
	o := bowline(t, "", withPeer(t, "library", "inspect")...)
	for _, want := range []string{
		"server             library 2\n", "revision           2026-07-28\n", "completions", "tools              2\n", "resources          2\n",
		"resourceTemplates  1\n", "prompts            1\n", "\ninstructions\n  Ask the \x1b[31mlibrarian\n  first.\n",
	} {
		o.want(t, 0, want, "")
	}
	o = bowline(t, "", withPeer(t, "library", "inspect", "--json", "--revision", "2025-06-18")...)
	var p profile
	if err := protocol.Unmarshal([]byte(o.stdout), &p); err != nil || p.Revision != "2025-06-18" || p.Info.Name != "library" || p.Counts["tools"] != 2 || p.Capabilities.Prompts == nil {
		t.Errorf("status %d, the profile is %+v, %v\n%s", o.status, p, err, o.stdout)
	}
	bowline(t, "", withPeer(t, "toolless", "inspect")...).want(t, 0, "capabilities  none\n", "")
}

// TestListsAreBounded checks that the command fails if a server sends pages without end.
func TestListsAreBounded(t *testing.T) {
	testenv.Crowd(t)
	for _, args := range [][]string{{"tools"}, {"inspect"}, {"call", "none"}} {
		bowline(t, "", withPeer(t, "endless list", args...)...).want(t, process.ExitCallFailed, "", "more than 67108864 bytes of tools/list")
	}
}

func TestCompletionOfResourcesAndPrompts(t *testing.T) {
	bowline(t, "", append(withPeer(t, "library", "__complete", "read"), "")...).want(t, 0, "book://moby\ta whale\n", "")
	bowline(t, "", append(withPeer(t, "library", "__complete", "prompt"), "")...).want(t, 0, "greeting\tgreets\n", "")
}

// TestQuestionsAreDeclinedWithoutATerminal checks in both eras that questions are declined
// with a message.
func TestQuestionsAreDeclinedWithoutATerminal(t *testing.T) {
	for _, revision := range []string{protocol.Latest, "2025-11-25"} {
		for _, tool := range []string{"register", "visit"} {
			o := bowline(t, "", withPeer(t, "library", "call", tool, "--revision", revision)...)
			o.want(t, process.ExitToolFailed, "", "bowline: declined a question of the server, because there is no terminal: ")
			for l := range strings.Lines(o.stderr) {
				if strings.HasPrefix(l, "bowline: forged") || strings.ContainsAny(l, "\x1b\x07") {
					t.Errorf("text of the server looks like a message of the command: %q", l)
				}
			}
		}
	}
}
