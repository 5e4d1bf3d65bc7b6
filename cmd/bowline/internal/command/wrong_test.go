package command

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// TestWrongUsage checks status 2, a message, and nothing on standard output.
func TestWrongUsage(t *testing.T) {
	call := func(args ...string) []string { return withBundled(t, append([]string{"call"}, args...)...) }
	for _, c := range []struct {
		name   string
		args   []string
		stderr string
	}{
		{"unknown command", []string{"tolls"}, `unknown command "tolls"; did you mean tools?`},
		{"unknown command of auth", []string{"auth", "statu"}, `unknown command "statu"; did you mean status?`},
		{"unknown help topic", []string{"help", "tolls"}, `unknown command "tolls"; did you mean tools?`},
		{"unknown flag", []string{"tools", "--nope"}, "unknown flag: --nope\n"},
		{"mistyped flag", []string{"tools", "--comand", "x"}, "unknown flag: --comand; did you mean --command?"},
		{"longer name of a flag", []string{"tools", "--log-level", "info"}, "unknown flag: --log-level; did you mean --log?"},
		{"two tools", []string{"tools", "a", "b"}, `unexpected argument "b"; a server is named by a flag`},
		{"two resources", []string{"read", "a", "b"}, `unexpected argument "b"`},
		{"prompt of a server without any", withBundled(t, "prompt", "x"), "the server has no prompts\n"},
		{"list", []string{"list"}, `unknown command "list"; did you mean prompts or resources or tools?`},
		{"another name of a command", []string{"run"}, `unknown command "run"; did you mean call`},
		{"argument too many", []string{"version", "x"}, `unexpected argument "x"` + "\n"},
		{"server as an argument", []string{"resources", "x"}, `unexpected argument "x"; a server is named by a flag: --command, --url or --mcp-config`},
		{"flag without a command", []string{"--command", "x"}, "unknown flag: --command; flags come after a command"},
		{"flag that is no duration", call("echo", "--timeout", "soon"), `--timeout "soon" is not a duration such as 500ms, 30s or 2m`},
		{"duration without a unit", call("echo", "--timeout", "5"), "--timeout 5 has no unit: use 5s for seconds, or 5m for minutes"},
		{"negative timeout", call("echo", "--timeout", "-1s"), "--timeout must not be negative"},
		{"no time to initialize", call("echo", "--init-timeout", "0"), "--init-timeout must be above zero"},
		{"serve without a transport", []string{"serve"}, "bowline serve --stdio"},
		{"unknown shell", []string{"completion", "ksh"}, `unknown command "ksh"`},
		{"no server", []string{"tools"}, "no server given"},
		{"two servers", []string{"tools", "--command", "a", "--url", "http://127.0.0.1/"}, "--command and --url cannot be used together"},
		{"no URL", []string{"tools", "--url", "127.0.0.1:80"}, "the URL is not like http://"},
		{"no header", []string{"tools", "--url", "http://127.0.0.1/", "--header", "secret"}, "--header is not 'Name: value'"},
		{"header of a process", call("echo", "--header", "A: b"), "--header, --cacert and --insecure are only for a server over HTTP"},
		{"certificates of a process", call("echo", "--insecure"), "are only for a server over HTTP"},
		{"no certificates", []string{"tools", "--url", "https://127.0.0.1/", "--cacert", os.DevNull}, "contains no certificate in PEM"},
		{"environment of a URL", []string{"tools", "--url", "http://127.0.0.1/", "--env", "A=b"}, "--env and --cwd are only for a server that this command starts"},
		{"no address", []string{"serve", "--http", "8080"}, "is not an address such as :8080"},
		{"both ways to serve", []string{"serve", "--http", ":0", "--stdio"}, "use --stdio or --http"},
		{"faults over HTTP", []string{"serve", "--http", ":0", "--faults"}, "--faults needs --stdio"},
		{"blank server", []string{"tools", "--command", "  "}, "contains no command"},
		{"open quote", []string{"tools", "--command", "a 'b"}, "is not closed"},
		{"shell operator", []string{"tools", "--command", "a | b"}, "no shell runs the command"},
		{"variable without a value", call("echo", "--env", "NAME"), `--env "NAME" is not NAME=VALUE`},
		{"variable without a name", call("echo", "--env", "=x"), `--env "=x" is not NAME=VALUE`},
		{"unknown revision", call("echo", "--revision", "2025-13-01"), `--revision "2025-13-01" is none of`},
		{"no resource", []string{"read"}, "name the URI of the resource"},
		{"no prompt", []string{"prompt"}, "name the prompt"},
		{"nothing typed", []string{"complete", "greeting"}, "name the argument, as KEY=TYPED"},
		{"missing directory", call("echo", "--cwd", "/does/not/exist"), "is not a directory"},
		{"no tool", call(), "name the tool to call"},
		{"unknown tool", call("ecko", "message=hi"), `no tool "ecko"; did you mean echo? It has: echo, `},
		{"no pair", call("echo", "message"), `argument "message" is not KEY=VALUE`},
		{"server among pairs", call("echo", "message=hi", "./server"), `argument "./server" is not KEY=VALUE, and not the one JSON object; a server is named by a flag: --command, --url or --mcp-config`},
		{"no key", call("echo", "=x"), `argument "=x" is not KEY=VALUE`},
		{"key given twice", call("echo", "message=a", "message=b"), `"message" is given twice`},
		{"object among pairs", call("echo", "{}", "message=b"), `argument "{}" is not KEY=VALUE`},
		{"broken object", call("echo", `{"message"`), "the argument is not JSON"},
		{"member given twice", call("echo", `{"message":"a","message":"b"}`), "duplicate object member name"},
		{"empty standard input", call("echo", "-"), "standard input is empty"},
		{"broken forced JSON", call("echo", "message:=hi"), "the value after := is not JSON"},
		{"wrong type", call("add", "a=1", "b=two"), `argument "b": expected number, got "two"`},
		{"no integer", call("slow", "seconds=1", "steps=1.5"), `argument "steps": expected integer, got "1.5"`},
		{"missing argument", call("echo"), `"message"`},
		{"unknown key", call("echo", "message=hi", "volume=11"), `"volume"`},
		{"out of bounds", call("big", "bytes=8388609"), "more than 8388608"},
		{"how it is meant", call("slow"), "It takes: bowline call slow seconds=NUMBER [steps=INTEGER]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := bowline(t, "", c.args...)
			if o.want(t, process.ExitUsage, "", c.stderr); o.stdout != "" {
				t.Errorf("standard output is not empty: %q", o.stdout)
			}
			if strings.Contains(o.stderr, "Flags:") {
				t.Errorf("the message is too long:\n%s", o.stderr)
			}
		})
	}
}

// TestNoSession checks status 3, and a message with the reason and advice.
func TestNoSession(t *testing.T) {
	t.Parallel()
	tools := func(peer string, args ...string) []string {
		return withPeer(t, peer, append([]string{"tools"}, args...)...)
	}
	for _, c := range []struct {
		name   string
		args   []string
		stderr []string
	}{
		{"program that is not executable", []string{"tools", "--command", "./wrong_test.go"}, []string{"cannot be started", connect.AdviceDenied}},
		{"missing binary", []string{"tools", "--command", "bowline-is-not-installed"}, []string{"cannot be started", connect.AdviceMissing}},
		{"ends at once", tools("gone"), []string{"exited with status 7; its standard error ends:\n    no licence found", connect.AdviceExited}},
		{"ends with garbage", tools("closed"), []string{"exited with status 0", "contains lines that are not JSON-RPC", connect.AdviceInvalid}},
		{"never answers", tools("mute", "--init-timeout", "100ms"), []string{"did not complete the handshake within 100ms", connect.AdviceSilent}},
		{"never answers a modern client", tools("mute", "--init-timeout", "100ms", "--revision", "2026-07-28"), []string{"did not complete the handshake within 100ms", connect.AdviceSilent}},
		{"a little garbage", tools("chatty", "--init-timeout", "1s"), []string{"did not complete the handshake", "contains lines that are not JSON-RPC", connect.AdviceInvalid}},
		{"much garbage", tools("babbler"), []string{"does not send JSON-RPC", "contains lines that are not JSON-RPC", connect.AdviceInvalid}},
		{"refuses", tools("refuser"), []string{"refused the session", "not \uFFFD[31mtoday", connect.AdviceRefused}},
		{"another revision", tools("ancient"), []string{`"1999-01-01"`, connect.AdviceVersions}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := bowline(t, "", c.args...)
			for _, fragment := range c.stderr {
				o.want(t, process.ExitNoSession, "", fragment)
			}
		})
	}
}

// TestOneDiagnosisHoweverOftenItWasTried checks that the message does not depend on how often a
// program that exits immediately was started.
func TestOneDiagnosisHoweverOftenItWasTried(t *testing.T) {
	exited := conn.Reason{Kind: conn.Exited, Err: &transport.ExitError{Command: "echo"}}
	line := telemetry.Violation{Err: &jsonrpc.DecodeError{Err: errors.New("invalid character 'h'")}}
	explain := func(attempts int) string {
		seen := new(connect.InvalidOutput)
		for range attempts {
			seen.Add(line)
		}
		return connect.ExplainConnect(exited, &connect.Endpoint{Name: "echo"}, time.Second, seen).Error()
	}
	if once, twice := explain(1), explain(2); once != twice || !strings.Contains(once, connect.AdviceInvalid) {
		t.Errorf("started once:\n%s\nstarted twice:\n%s", once, twice)
	}
}

func TestToolFails(t *testing.T) {
	o := bowline(t, "", withBundled(t, "call", "fail", "message=out of tar")...)
	if o.want(t, process.ExitToolFailed, "", `bowline: tool "fail" failed: out of tar`+"\n"); o.stdout != "" {
		t.Errorf("standard output is not empty: %q", o.stdout)
	}
}

// TestToolFailureCannotDriveTheTerminal checks that a peer's text is printed without control
// characters.
func TestToolFailureCannotDriveTheTerminal(t *testing.T) {
	bowline(t, "", withPeer(t, "odd", "call", "hostile")...).want(t, process.ExitToolFailed, "", "\uFFFD[2Jgone")
}

// TestCallFails checks status 4, and that the message says whether the tool may have run.
func TestCallFails(t *testing.T) {
	const mayHaveRun = "The server may have executed the request."
	for _, c := range []struct {
		name   string
		args   []string
		stderr []string
	}{
		{"server crashes", withBundled(t, "call", "crash", "status=3"), []string{"exited with status 3", "ending with status 3, as asked", mayHaveRun}},
		{"time runs out", withBundled(t, "call", "slow", "seconds=3600", "--timeout", "1s"), []string{"no answer within --timeout 1s", mayHaveRun}},
		{"no tools at all", withPeer(t, "toolless", "tools"), []string{`does not offer "tools"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := bowline(t, "", c.args...)
			for _, fragment := range c.stderr {
				o.want(t, process.ExitCallFailed, "", fragment)
			}
		})
	}
}
