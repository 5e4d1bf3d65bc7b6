package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/consent"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// writeConfig writes an mcp.json into a new folder. $SELF in it is this test binary,
// which runs as the command.
func writeConfig(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "$SELF", strings.ReplaceAll(executable(t), `\`, `\\`))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoServers = `{
	// as a desktop host writes it
	"mcpServers": {
		"bundled": {
			"command": "$SELF", "args": ["serve", "--stdio"], "env": {"GREETING": "${BOWLINE_TEST_UNSET:-hi}"},
			"autoApprove": ["echo"],
		},
		"other": {"command": "$SELF", "args": ["serve", "--stdio"]},
		"off": {"command": "${BOWLINE_TEST_UNSET}", "disabled": true},
		"remote": {"type": "sse", "url": "https://example.com/mcp"},
	},
}`

func TestServerOfAConfig(t *testing.T) {
	path := writeConfig(t, "mcp.json", twoServers)
	o := bowline(t, "", "call", "echo", "message=hello", "--mcp-config", path, "--server", "bundled")
	o.want(t, 0, "hello\n", "ignored: mcpServers.bundled.autoApprove")
	o = bowline(t, "", "tools", "--mcp-config", path, "--server", "other")
	o.want(t, 0, "echo", "")
}

func TestOnlyServerOfAConfigNeedsNoName(t *testing.T) {
	path := writeConfig(t, "mcp.json", `{"servers": {"bundled": {"type": "stdio", "command": "$SELF", "args": ["serve", "--stdio"]}}}`)
	bowline(t, "", "call", "add", "a=1", "b=2", "--mcp-config", path).want(t, 0, `{"sum":3}`, "")
}

// TestOtherEntriesDoNotMatter checks that only the chosen server is read.
//
// Guarantees: G-0018.12
func TestOtherEntriesDoNotMatter(t *testing.T) {
	path := writeConfig(t, "mcp.json", `{"servers": {
		"bad": {"command": "${BOWLINE_TEST_UNSET} ${input:x}"},
		"good": {"command": "$SELF", "args": ["serve", "--stdio"]}}}`)
	bowline(t, "", "call", "echo", "message=hi", "--mcp-config", path, "--server", "good").want(t, 0, "hi\n", "")
}

// TestConfigOfTheWorkingDirectoryNeedsConsent checks that without a terminal nothing is
// started, and the message says what to do. Consent is for one content of one file.
//
// Guarantees: G-0018.16
func TestConfigOfTheWorkingDirectoryNeedsConsent(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AppData", t.TempDir())
	for _, name := range []string{".mcp.json", "mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"} {
		path := writeConfig(t, name, `{"mcpServers": {"bundled": {"command": "$SELF", "args": ["serve", "--stdio"]}}}`)
		directory, name := strings.TrimSuffix(path, filepath.FromSlash(name)), filepath.FromSlash(name)
		o := bowlineIn(t, directory, "call", "echo", "message=found")
		o.want(t, process.ExitUsage, "", "bowline: "+name+" of the working directory may start any program")
		o.want(t, process.ExitUsage, "", "Name it with --mcp-config "+name)
		bowlineIn(t, directory, "call", "echo", "message=found", "--mcp-config", name).want(t, 0, "found\n", "")

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		record, err := consent.ConsentTo(path, text)
		if err != nil {
			t.Fatal(err)
		}
		write(t, record, "")
		bowlineIn(t, directory, "call", "echo", "message=found").want(t, 0, "found\n", "bowline: using "+name)
		write(t, path, string(text)+" ")
		bowlineIn(t, directory, "tools").want(t, process.ExitUsage, "", "nobody has agreed to it")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWrongConfig(t *testing.T) {
	for _, c := range []struct {
		name, text string
		args       []string
		stderr     []string
	}{
		{"several servers", twoServers, nil, []string{"several servers: choose one with --server: bundled, other, remote"}},
		{"unknown server", twoServers, []string{"--server", "bundle"}, []string{"no such server", "did you mean bundled?"}},
		{"disabled server", twoServers, []string{"--server", "off"}, []string{"is disabled"}},
		{"remote server", twoServers, []string{"--server", "remote", "--cwd", "."}, []string{"not for one over HTTP"}},
		{"with a command", twoServers, []string{"--command", "x"}, []string{"--mcp-config and --server cannot be used with --command or --url"}},
		{"no servers", `{"mcpServers": {}}`, nil, []string{"has no enabled server"}},
		{"all mistakes of a server at once", "{\"mcpServers\": {\"a\": {\n\"command\": 7,\n\"cwd\": \"${BOWLINE_TEST_UNSET}\"\n}}}", nil,
			[]string{"mcp.json:2:", "mcp.json:3:", "BOWLINE_TEST_UNSET"}},
		{"an input that nobody can be asked for", `{"inputs": [{"id": "k", "type": "promptString"}], "servers": {"a": {"command": "${input:k}"}}}`, nil,
			[]string{`"${input:k}" has no answer: standard input and standard error are not a terminal`}},
		{"no JSON", "{\n  what\n}", nil, []string{"mcp.json:2:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeConfig(t, "mcp.json", c.text)
			o := bowline(t, "", append([]string{"tools", "--mcp-config", path}, c.args...)...)
			for _, fragment := range c.stderr {
				o.want(t, process.ExitUsage, "", fragment)
			}
		})
	}
	bowline(t, "", "tools", "--mcp-config", "/does/not/exist").want(t, process.ExitUsage, "", "/does/not/exist")
}

func TestTimeoutsOfAConfigYieldToFlags(t *testing.T) {
	path := writeConfig(t, "mcp.json", `{"mcpServers": {"bundled": {"command": "$SELF", "args": ["serve", "--stdio"],
		"bowline": {"requestTimeout": "50ms"}}}}`)
	o := bowline(t, "", "call", "slow", "seconds=20", "--mcp-config", path)
	o.want(t, process.ExitCallFailed, "", "50ms")
	o = bowline(t, "", "call", "slow", "seconds=0.1", "--timeout", "20s", "--mcp-config", path)
	o.want(t, 0, "took 100ms", "")
}

func TestServerNamesAreCompleted(t *testing.T) {
	path := writeConfig(t, "mcp.json", twoServers)
	o := bowline(t, "", "__complete", "call", "--mcp-config", path, "--server", "")
	for _, name := range []string{"bundled", "other", "remote"} {
		if !strings.Contains(o.stdout, name+"\n") {
			t.Errorf("%s is not offered:\n%s", name, o.stdout)
		}
	}
	if strings.Contains(o.stdout, "off\n") {
		t.Errorf("a disabled server is offered:\n%s", o.stdout)
	}
}

// TestCompletedServerNamesCannotDriveTheTerminal checks names of a file in the working directory.
// The completion scripts print what begins with _activeHelp_ instead of completing it.
func TestCompletedServerNamesCannotDriveTheTerminal(t *testing.T) {
	path := writeConfig(t, ".mcp.json", `{"mcpServers": {"plain": {}, "a\u001b]0;b\u009b\u202e": {}, "_activeHelp_ \u001b[2J": {}, " _activeHelp_ x": {}, "c\nd": {}}}`)
	o := bowlineIn(t, filepath.Dir(path), "__complete", "call", "--server", "")
	if want := "plain\na\uFFFD]0;b\uFFFD\uFFFD\nc\n:4\n"; o.stdout != want {
		t.Errorf("the completions are %q, want %q", o.stdout, want)
	}
}

// TestCompletionStartsNoServerThatNobodyNamed checks that completion does not start a server
// of a file in the working directory.
func TestCompletionStartsNoServerThatNobodyNamed(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "started")
	path := writeConfig(t, ".mcp.json", fmt.Sprintf(`{"mcpServers": {"a": {"command": "touch", "args": [%q]}}}`, trace))
	bowlineIn(t, filepath.Dir(path), "__complete", "call", "")
	if _, err := os.Stat(trace); err == nil {
		t.Error("the server was started")
	}
}

// bowlineIn runs the command in a directory until it ends.
func bowlineIn(t *testing.T, directory string, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := command(t, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = directory, &stdout, &stderr
	status := exitStatus(t, cmd.Run())
	return outcome{stdout.String(), stderr.String(), status}
}
