package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// TestChildren runs the soak with few children, many kills and little time.
func TestChildren(t *testing.T) {
	var out strings.Builder
	o := options{seed: 1, timeout: time.Minute, children: childrenOptions{
		children: 6, callers: 3, kills: 10, duration: 2 * time.Second, pause: 10 * time.Millisecond,
	}}
	if err := run(t.Context(), &out, o); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"6 child processes", "1. start", "2. 3 callers of each", "children killed", "###",
		"connections were sampled", "3. one call each", "4. drain", "calls ended by", "answered", "link lost",
		"were executed", "0 processes, 0 zombies, 0 descriptors more than before",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

// TestProcessesAreFound checks that processes finds a running process by its mark, and a
// process that has ended and was not waited for.
func TestProcessesAreFound(t *testing.T) {
	const mark = "test-of-processes"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	expect := func(want found) {
		t.Helper()
		for got := (found{-1, -1}); got != want; {
			var err error
			if got, err = processes(mark); err != nil {
				t.Fatal(err)
			}
			if wait.Sleep(ctx, time.Millisecond) != nil {
				t.Fatalf("found %+v, want %+v", got, want)
			}
		}
	}
	expect(found{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), markVariable+"="+mark, executedVariable+"="+filepath.Join(t.TempDir(), "executed"))
	input, err := command.StdinPipe() // the child ends when its input does
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	expect(found{marked: 1})
	if err := command.Process.Kill(); err != nil {
		t.Error(err)
	}
	expect(found{zombies: 1})
	if command.Wait() == nil {
		t.Error("the process was killed, and Wait returned no error")
	}
	expect(found{})
}

// TestOpenFilesAreCounted checks that one more open file is counted as one.
func TestOpenFilesAreCounted(t *testing.T) {
	before, err := openFiles()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := openFiles(); err != nil || now != before+1 {
		t.Errorf("%d files were open, and with one more %d, %v", before, now, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
