package stdio

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// TestCommandTakesTheSettingsOfACmd: for each new child.
//
// Guarantees: G-0014.20
func TestCommandTakesTheSettingsOfACmd(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self := roleCommand(t, "situation")
	cmd := exec.Command(self.Path, "-x")
	cmd.Dir = dir
	cmd.Env = append(self.Env, "BOWLINE_STDIO_TEST_INHERITED=of the Cmd") // and nothing of this process
	var pids []int
	command := &Command{Cmd: cmd, Env: []string{"BOWLINE_STDIO_TEST_ADDED=added"}, Started: func(pid int) { pids = append(pids, pid) }}
	t.Setenv("BOWLINE_STDIO_TEST_INHERITED", "of this process")
	for range 2 {
		p := open(t, command)
		p.want("[-x] " + dir + " of the Cmd added")
		p.close(hangGuard)
	}
	if command.Name() != strings.TrimSuffix(filepath.Base(self.Path), ".exe") {
		t.Errorf("the name is %s", command.Name())
	}
	if len(pids) != 2 || pids[0] == pids[1] || cmd.Process != nil {
		t.Errorf("started were %v, and %v by the Cmd itself", pids, cmd.Process)
	}
}

// Guarantees: G-0014.20
func TestStderrOfACmd(t *testing.T) {
	self := roleCommand(t, "exit")
	cmd := exec.Command(self.Path)
	cmd.Env = append(os.Environ(), self.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	p := open(t, &Command{Cmd: cmd})
	if exit := lossAs[*transport.ExitError](p); exit.Command != self.Path || stderr.String() != exit.Stderr || exit.Stderr == "" {
		t.Errorf("lost with %+v, and standard error was %q", exit, &stderr)
	}
}

// Guarantees: G-0014.8, G-0014.20
func TestCmdsThatCannotBeUsed(t *testing.T) {
	started := exec.Command(roleCommand(t, "exit").Path)
	started.Process = new(os.Process)
	for want, command := range map[string]*Command{
		"both a Cmd and a Path":  {Cmd: exec.Command("x"), Path: "y"},
		"or Args are given":      {Cmd: exec.Command("x"), Args: []string{"y"}},
		"has been started":       {Cmd: started},
		"these are the link's":   {Cmd: &exec.Cmd{Path: "x", Stdin: strings.NewReader("")}},
		"no command is given":    {Cmd: &exec.Cmd{}},
		"bowline-no-such-thing":  {Cmd: exec.Command("bowline-no-such-thing")},
		"executable file not fo": {Cmd: exec.Command("bowline-no-such-thing")},
	} {
		_, err := command.Open(t.Context())
		var start *transport.StartError
		if !errors.As(err, &start) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
