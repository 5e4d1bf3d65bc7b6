package command

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// TestLogsFollowsAServer checks that each log message is one line, also after a crash of the
// server.
func TestLogsFollowsAServer(t *testing.T) {
	t.Parallel()
	cmd := command(t, withPeer(t, "logger", "logs", "--log", "notice", "--cwd", t.TempDir())...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	output := ""
	for lines := bufio.NewScanner(stdout); strings.Count(output, "\n") < 4 && lines.Scan(); {
		output += lines.Text() + "\n"
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	o := outcome{output, "", exitStatus(t, cmd.Wait())}
	o.stderr = stderr.String()
	const once = `warning db: slow\nbowline: forged` + "\n" + `error: {"asked":{"level":"notice"}}` + "\n"
	o.want(t, process.ExitInterrupted, once+once, "the connection was lost; reconnecting: ")
}

func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/crashed", 0o700); err != nil {
		t.Fatal(err)
	}
	o := bowline(t, "", withPeer(t, "logger", "logs", "--json", "--timeout", "1s", "--cwd", dir)...)
	o.want(t, 0, `{"level":"warning","logger":"db","data":"slow\nbowline: forged"}`+"\n", "")
	o.want(t, 0, `{"level":"error","data":{"asked":{"level":"info"}}}`+"\n", "")
}

func TestLogsOfAServerWithoutAny(t *testing.T) {
	bowline(t, "", withPeer(t, "toolless", "logs")...).want(t, process.ExitCallFailed, "", `does not offer "logging"`)
	bowline(t, "", withBundled(t, "logs", "--log", "loud")...).want(t, process.ExitUsage, "", `--log "loud" is none of debug, info`)
	bowline(t, "", "logs", "--command", "bowline-is-not-installed").want(t, process.ExitNoSession, "", connect.AdviceMissing)
	bowline(t, "", "logs", "--url", "http://127.0.0.1:1/mcp").want(t, process.ExitNoSession, "", connect.AdviceRemote) // at once
}

// TestLogOfACall checks in both eras that log messages of a call go to standard error.
func TestLogOfACall(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		o := bowline(t, "", "call", "test_tool_with_logging", "--log", "info", "--revision", revision,
			"--command", "'"+executable(t)+"' serve --stdio --fixtures")
		o.want(t, 0, "Tool with logging completed\n", "log info: Tool execution started\nlog info: Tool processing data\n")
	}
}

// TestRecordPassesEverythingOn checks that all frames between a host and a server are forwarded
// and recorded.
func TestRecordPassesEverythingOn(t *testing.T) {
	file := t.TempDir() + "/talk.txt"
	large := strings.Repeat("x", 3<<20)
	in := initialize + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"echo","arguments":{"message":"` + large + `"}}}` + "\n" +
		`{"jsonrpc":"2.0","id":"add","method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}` + "\n"
	o := bowline(t, in, withBundled(t, "record", file)...)
	o.want(t, 0, `"id":"init"`, "")
	o.want(t, 0, large, "")
	o.want(t, 0, `{"sum":3}`, "")
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"= opened\n> {", "\n< {", large, `{"sum":3}`, "\n= lost: "} {
		if !strings.Contains(string(written), line) {
			t.Errorf("%.40q is not in the transcript, which has %d bytes", line, len(written))
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may read the transcript: %v, %v", info.Mode(), err)
	}
}

func TestRecordOfACommand(t *testing.T) {
	o := bowline(t, "", withBundled(t, "call", "echo", "message=hi", "--record", "-")...)
	o.want(t, 0, "hi\n", "= opened\n> {")
	o.want(t, 0, "", "\n< {")
	o = bowline(t, "", withBundled(t, "tools", "--record", "/does/not/exist/file")...)
	o.want(t, process.ExitUsage, "", "the transcript: ")
}

// TestRecordOfAServerThatEnds checks status 3, and that the transcript is written.
func TestRecordOfAServerThatEnds(t *testing.T) {
	file := t.TempDir() + "/talk.txt"
	cmd := command(t, withPeer(t, "gone", "record", file)...)
	stdin, err := cmd.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	status := exitStatus(t, cmd.Run())
	outcome{stderr: stderr.String(), status: status}.want(t, process.ExitNoSession, "", "the server has ended: the server exited with status 7")
	if written, err := os.ReadFile(file); err != nil || !strings.Contains(string(written), "= lost: ") {
		t.Errorf("%q, %v", written, err)
	}
	bowline(t, "", "record", file, "--url", "http://127.0.0.1:1/").want(t, process.ExitUsage, "", "use --record with the command")
	bowline(t, "", "record").want(t, process.ExitUsage, "", "name the file to write")
}
