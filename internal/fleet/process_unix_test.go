//go:build unix

package fleet

import (
	"os"
	"os/exec"
	"testing"
)

// A process is alive until it was waited for, also if another one has replaced it.
func TestAliveCountsEachProcess(t *testing.T) {
	var p Process
	start := func() *exec.Cmd {
		t.Helper()
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"=1")
		if _, err := child.StdinPipe(); err != nil { // it does not outlive this program
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		p.Started(child.Process.Pid)
		return child
	}
	want := func(alive int) {
		t.Helper()
		if n := p.Alive(); n != alive {
			t.Errorf("%d processes are alive, want %d", n, alive)
		}
	}
	first := start()
	second := start()
	want(2)
	if !p.Kill() || p.Kill() || p.Replaced() {
		t.Error("the latest process is not killed once")
	}
	second.Wait() // which says that it was killed
	want(1)
	third := start()
	if !p.Replaced() || p.Pid() != third.Process.Pid {
		t.Error("the latest process is another")
	}
	want(2)
	first.Process.Kill()
	first.Wait()
	p.Kill()
	third.Wait()
	want(0)
	if n, err := p.Close(); n != 3 || err != nil {
		t.Errorf("%d processes were started: %v", n, err)
	}
}
