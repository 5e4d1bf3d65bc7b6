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

// A Command with a Cmd uses its settings for each new child, unless it has its own, and does not change it.
//
// Guarantees: G-0014.20
func TestCommandTakesTheSettingsOfACmd(t *testing.T) {
	directory := func() string {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir, own := directory(), directory()
	self := roleCommand(t, "situation")
	cmd := exec.Command(self.Path, "-x")
	cmd.Dir = dir
	cmd.Env = append(self.Env, "BOWLINE_STDIO_TEST_INHERITED=of the Cmd") // replaces the environment of this process
	var pids []int
	command := &Command{Cmd: cmd, Env: []string{"BOWLINE_STDIO_TEST_ADDED=added"}, Started: func(pid int) { pids = append(pids, pid) }}
	t.Setenv("BOWLINE_STDIO_TEST_INHERITED", "of this process")
	for _, now := range []struct{ dir, want string }{{"", dir}, {own, own}} { // its own Dir takes precedence
		command.Dir = now.dir
		p := open(t, command)
		p.want("[-x] " + now.want + " of the Cmd added")
		p.close(hangGuard)
	}
	if !command.Traits().StartsProcess || command.Traits().Name != strings.TrimSuffix(filepath.Base(self.Path), ".exe") {
		t.Errorf("got the traits %+v, want the name of the program, which starts a process", command.Traits())
	}
	if len(pids) != 2 || pids[0] == pids[1] || cmd.Process != nil || cmd.Dir != dir {
		t.Errorf("got the processes %v and the Cmd's own process %v, want two and none", pids, cmd.Process)
	}
}

// Standard error of the child goes to the Stderr of the Cmd, unless the Command has one, and its last lines into
// the error.
//
// Guarantees: G-0014.20
func TestStderrOfACmd(t *testing.T) {
	self := roleCommand(t, "exit")
	cmd := exec.Command(self.Path)
	cmd.Env = append(os.Environ(), self.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	p := open(t, &Command{Cmd: cmd})
	if exit := lossAs[*transport.ExitError](p); exit.Command != self.Path || stderr.String() != exit.Stderr || exit.Stderr == "" {
		t.Errorf("got the reason %+v and the standard error %q", exit, &stderr)
	}
	said := stderr.String()
	var own bytes.Buffer
	p = open(t, &Command{Cmd: cmd, Stderr: &own})
	if exit := lossAs[*transport.ExitError](p); own.String() != exit.Stderr || stderr.String() != said {
		t.Errorf("the Command's own Stderr got %q, and that of the Cmd %q more", &own, stderr.String()[len(said):])
	}
}

// Open fails with a clear error for a Cmd that cannot be used.
//
// Guarantees: G-0014.8, G-0014.20
func TestCmdsThatCannotBeUsed(t *testing.T) {
	started := exec.Command(roleCommand(t, "exit").Path)
	started.Process = new(os.Process)
	for want, command := range map[string]*Command{
		`"/x": both a Cmd and`:   {Cmd: &exec.Cmd{Path: "/x"}, Path: "y"},
		`"/x": the Cmd has bee`:  {Cmd: &exec.Cmd{Path: "/x", Stdin: strings.NewReader("")}},
		"or Args are given":      {Cmd: exec.Command("x"), Args: []string{"y"}},
		"has been started":       {Cmd: started},
		"these are the link's":   {Cmd: &exec.Cmd{Path: "x", Stdin: strings.NewReader("")}},
		"a Stdin or Stdout":      {Cmd: &exec.Cmd{Path: "x", Stdout: new(bytes.Buffer)}},
		"no command is given":    {Cmd: &exec.Cmd{}},
		"bowline-no-such-thing":  {Cmd: exec.Command("bowline-no-such-thing")},
		"executable file not fo": {Cmd: exec.Command("bowline-no-such-thing")},
	} {
		_, err := command.Open(t.Context())
		var start *transport.StartError
		if !errors.As(err, &start) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if checked := command.Check(); checked != nil && checked.Error() != err.Error() {
			t.Errorf("Check says %v, and Open %v", checked, err)
		}
	}
}

// Start starts each child, may let another program do it, and its error is that of Open. The
// child, and what is said of it, are as without Start.
//
// Guarantees: G-0014.24
func TestStartInPlaceOfTheCmds(t *testing.T) {
	self := roleCommand(t, "exit")
	var started []string
	self.Start = func(cmd *exec.Cmd) error {
		started = append(started, cmd.Path)
		cmd.Args = append([]string{"relayed", cmd.Path}, cmd.Args[1:]...)
		return cmd.Start()
	}
	exit := lossAs[*transport.ExitError](open(t, self))
	if exit.Command != self.Path || exit.Status != 3 || !strings.Contains(exit.Stderr, "cannot read the configuration") || len(started) != 1 || started[0] != self.Path {
		t.Errorf("got the reason %+v after Start for %q", exit, started)
	}
	broken := errors.New("broken")
	_, err := (&Command{Path: self.Path, Start: func(*exec.Cmd) error { return broken }}).Open(t.Context())
	if start := (*transport.StartError)(nil); !errors.As(err, &start) || start.Command != self.Path || start.Err != broken {
		t.Errorf("got %v, want a StartError for %v", err, broken)
	}
}
