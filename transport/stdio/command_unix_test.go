//go:build unix

package stdio

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/transport"
)

// If a child is killed in the middle of a frame, the partial frame is not delivered.
//
// Guarantees: G-0014.9
func TestChildKilledInTheMiddleOfAFrame(t *testing.T) {
	p := open(t, roleCommand(t, "killed in a frame"))
	p.want(`"whole"`)
	p.want(`"ha`)
	if exit := lossAs[*transport.ExitError](p); exit.Signal != "killed" || exit.Status != -1 {
		t.Fatalf("got the reason %+v, want exit.Signal == %q and exit.Status == -1", exit, "killed")
	}
}

// A failed start says what to change where the system's error misleads, and nothing elsewhere.
func TestFailedStartsHaveHints(t *testing.T) {
	directory := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Chdir(directory)
	if err := os.Mkdir("sh in a directory", 0o700); err != nil {
		t.Fatal(err)
	}
	script("sh in a directory/below", "#!/no/such/shell\n")
	for _, c := range []struct {
		command Command
		cause   error
		hint    string
	}{
		{Command{Path: "sh -c true"}, exec.ErrNotFound, `it is a whole command line: the program is "sh", and each argument belongs in Args, or in args of an mcp.json`},
		{Command{Path: "/bin/sh -c true"}, fs.ErrNotExist, `it is a whole command line: the program is "/bin/sh", and each argument belongs in Args, or in args of an mcp.json`},
		{Command{Path: "no-such-program -y x"}, exec.ErrNotFound, ""},
		{Command{Path: "no-such-program"}, exec.ErrNotFound, ""},
		{Command{Path: "sh in a directory"}, exec.ErrNotFound, `it is a whole command line: the program is "sh", and each argument belongs in Args, or in args of an mcp.json`},
		{Command{Path: script("plain", "echo hello\n")}, syscall.ENOEXEC, "it is neither a script whose first line is like #!/bin/sh, nor a program for " + runtime.GOOS + " on " + runtime.GOARCH},
		{Command{Path: script("lost", "#!/no/such/shell -e\n")}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: script("dos", "#!/bin/sh\r\n")}, fs.ErrNotExist, `its first line names the interpreter "/bin/sh\r", which does not exist`},
		{Command{Path: "./below", Dir: filepath.Join(directory, "sh in a directory")}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Cmd: &exec.Cmd{Path: "./below", Dir: filepath.Join(directory, "sh in a directory")}}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: filepath.Join(directory, "lost"), Dir: t.TempDir()}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: "./lost", Dir: directory}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: "/bin/sh", Dir: filepath.Join(directory, "none")}, fs.ErrNotExist, ""},
		{Command{Path: "sh", Dir: filepath.Join(directory, "none")}, fs.ErrNotExist, ""},
		{Command{Path: script("sound", "#!/bin/sh\n"), Dir: filepath.Join(directory, "none")}, fs.ErrNotExist, ""},
		{Command{Path: "./sound", Dir: t.TempDir()}, fs.ErrNotExist, ""},
		{Command{Path: script("nameless", "#!\n"), Dir: filepath.Join(directory, "none")}, fs.ErrNotExist, ""},
		{Command{Path: script("blank", "\n"), Dir: filepath.Join(directory, "none")}, fs.ErrNotExist, ""},
		{Command{Path: script("no script", "/no/such/shell\n"), Dir: filepath.Join(directory, "none")}, fs.ErrNotExist, ""},
		{Command{Path: script("sh -c", "#!/no/such/shell\n")}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: script("dos with arguments", "#!/no/such/shell -e\r\n")}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: script("unended", "#!/no/such/shell")}, fs.ErrNotExist, `its first line names the interpreter "/no/such/shell", which does not exist`},
		{Command{Path: script("to a directory", "#!"+directory+"\n")}, fs.ErrPermission, ""},
	} {
		_, err := c.command.Open(t.Context())
		var start *transport.StartError
		if !errors.As(err, &start) || !errors.Is(err, c.cause) || start.Hint != c.hint || !strings.HasSuffix(err.Error(), c.hint) {
			t.Errorf("start of %q: got %v, want a StartError for %v with the hint %q", c.command.name(), err, c.cause, c.hint)
		}
	}
}

// A child that ignores signals is killed and reaped.
//
// Guarantees: G-0014.7, G-0014.11
func TestChildThatIgnoresSignalsIsKilledAndReaped(t *testing.T) {
	p := open(t, roleCommand(t, "stubborn"))
	p.want(`"ready"`)
	p.close(brokenGrace)
	p.wantReaped()
}

// A child that joins another process group is asked to end, once, and then killed and
// reaped.
//
// Guarantees: G-0014.7, G-0014.11
func TestChildThatLeavesItsGroupIsEnded(t *testing.T) {
	socket := listen(t)
	p := open(t, roleCommand(t, "leaves its group", socket.variable()))
	said := socket.accept(t)
	p.want(`"ready"`)
	t.Cleanup(func() { p.Link.(*child).process.child.Kill() }) // if the link does not
	p.Link.(*child).process.ask()                              // as a link does that is lost while it is closed
	p.close(time.Second)
	p.wantReaped()
	if got, err := io.ReadAll(said); err != nil || string(got) != "asked\n" {
		t.Errorf("the child said %q, %v, want that it was asked to end, once", got, err)
	}
}

// A child is asked to end once, and so is each of its descendants.
//
// Guarantees: G-0014.7, G-0014.10
func TestTheWholeTreeIsAskedToEnd(t *testing.T) {
	socket := listen(t)
	p := open(t, roleCommand(t, "asked parent", socket.variable()))
	for range 2 {
		p.want(`"ready"`)
	}
	said := []io.Reader{socket.accept(t), socket.accept(t)}
	p.Link.(*child).process.ask()
	for _, one := range said {
		if got, err := io.ReadAll(one); err != nil || string(got) != "asked\n" {
			t.Errorf("a process said %q, %v, want that it was asked to end, once", got, err)
		}
	}
	if exit := lossAs[*transport.ExitError](p); exit.Status != 0 {
		t.Errorf("got the reason %+v, want that the child has ended by itself", exit)
	}
}

// If the program has reaped the child itself, how it ended is unknown, and nothing of it is left open.
//
// Guarantees: G-0014.9, G-0014.11
func TestAChildThatTheProgramHasReaped(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // opens the descriptors of the poller
	before := descriptors(t)
	command := roleCommand(t, "exit")
	command.Started = func(pid int) {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			t.Error(err)
		}
	}
	p := open(t, command)
	if exit := lossAs[*transport.ExitError](p); exit.Status != -1 || exit.Signal != "" {
		t.Errorf("got the reason %+v, want no status and no signal", exit)
	}
	p.close(0)
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Errorf("got the descriptors %v, want %v", after, before)
	}
}

// A child that closes its output is ended.
//
// Guarantees: G-0014.12
func TestChildThatClosesItsOutputIsEnded(t *testing.T) {
	p := open(t, roleCommand(t, "close stdout"))
	if loss := p.waitLoss(); loss.Reason != transport.ErrPeerClosed {
		t.Fatalf("got the reason %v, want %v", loss.Reason, transport.ErrPeerClosed)
	}
	p.wantReaped()
}

// A line above MaxFrame loses the link and ends the child.
//
// Guarantees: G-0008.1, G-0008.3
func TestOversizedLineLosesTheLinkAndKillsTheChild(t *testing.T) {
	socket := listen(t)
	command := roleCommand(t, "endless line", socket.variable())
	command.MaxFrame = 100_000
	p := open(t, command)
	conn := socket.accept(t)
	oversized := lossAs[*transport.OversizedError](p)
	if oversized.Limit != 100_000 || oversized.Size <= 100_000 || oversized.Size > 100_000+readAhead+1 {
		t.Fatalf("got the refusal %+v, want oversized.Limit == 100_000, oversized.Size > 100_000 and oversized.Size <= %v", oversized, 100_000+readAhead+1)
	}
	p.wantReaped()
	if said, err := io.ReadAll(conn); err != nil || len(said) > 0 {
		t.Fatalf("the child reported %s before it was killed, %v", said, err)
	}
}

// After Close, no descriptor of the link is left open.
//
// Guarantees: G-0014.11
func TestNoDescriptorIsLeft(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // opens the descriptors of the poller
	before := descriptors(t)
	for _, role := range []string{"echo", "exit", "close stdout", "never reads"} {
		open(t, roleCommand(t, role)).close(brokenGrace)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/shell\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, missing := range []string{"bowline-no-such-command", script} {
		if _, err := (&Command{Path: missing}).Open(context.Background()); err == nil {
			t.Fatalf("Open of %q succeeded, want an error", missing)
		}
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Fatalf("got the descriptors %[2]v, want %[1]v", before, after)
	}
}

// A panic in Started reaches the caller of Open, and the child is ended.
//
// Guarantees: G-0014.11
func TestAPanicInStartedLeavesNoChild(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // opens the descriptors of the poller
	before := descriptors(t)
	for name, end := range map[string]func(){
		"panic":  func() { panic("broken") },
		"Goexit": runtime.Goexit,
	} {
		command, pid, passed := roleCommand(t, "stubborn"), 0, make(chan any, 1)
		command.Started = func(started int) {
			pid = started
			end()
		}
		go func() {
			defer func() { passed <- recover() }()
			_, err := command.Open(context.Background())
			t.Errorf("%s: Open returned %v", name, err)
		}()
		got, _ := receive(t, passed, "end of Open")
		if name == "panic" && got != "broken" {
			t.Errorf("got %v, want the panic of Started", got)
		}
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("%s: process %d still exists: %v, want %v", name, pid, err, syscall.ESRCH)
		}
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Errorf("got the descriptors %[2]v, want %[1]v", before, after)
	}
}

// descriptors returns the open descriptors of this process. The last one reads the list
// itself.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// wantReaped checks that the child has been reaped and is not a zombie.
func (p *peer) wantReaped() {
	p.t.Helper()
	pid := p.Link.(*child).process.child.Pid
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		p.t.Fatalf("process %d still exists: %v, want %v", pid, err, syscall.ESRCH)
	}
}

// A link also ends the descendants of a child that leads its own session, and does not
// change the program's Cmd.
//
// Guarantees: G-0014.10, G-0014.20
func TestChildThatLeadsASession(t *testing.T) {
	socket := listen(t)
	self := roleCommand(t, "parent", socket.variable())
	cmd := exec.Command(self.Path)
	cmd.Env = append(os.Environ(), self.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setpgid: true}
	r, w := mustPipe(t)
	cmd.ExtraFiles = append(make([]*os.File, 0, 2), w) // with room that is the program's
	p := open(t, &Command{Cmd: cmd})
	orphan := socket.accept(t)
	if pid := p.Link.(*child).process.child.Pid; sessionOf(pid) != pid {
		t.Errorf("process %d is in session %d, want its own", pid, sessionOf(pid))
	}
	w.Close()
	p.close(brokenGrace)
	if said, err := io.ReadAll(orphan); err != nil || len(said) > 0 {
		t.Errorf("got %q, %v of the descendant, want none", said, err)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 { // the other end was in the child
		t.Errorf("got %q, %v of the extra file, want its end", rest, err)
	}
	r.Close()
	if len(cmd.ExtraFiles) != 1 || cmd.ExtraFiles[:2][1] != nil || !cmd.SysProcAttr.Setpgid {
		t.Errorf("got the Cmd %+v, want it unchanged", cmd)
	}
}

func sessionOf(pid int) int {
	session, _ := unix.Getsid(pid)
	return session
}
