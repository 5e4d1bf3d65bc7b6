package streamable

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// sessionsChild makes the test binary a process that keeps its sessions in a folder: what to do
// there, a space, and the folder.
const sessionsChild = "BOWLINE_TEST_SESSIONS"

// runSessionsChild does what sessionsChild says, and ends the process.
func runSessionsChild() {
	what, dir, wanted := strings.Cut(os.Getenv(sessionsChild), " ")
	if !wanted {
		return
	}
	err := fmt.Errorf("nothing is called %q", what)
	switch what {
	case "save":
		err = saveForEver(dir)
	case "hold":
		err = holdSessions(dir)
	case "fill":
		err = fillDisk(dir)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// saveForEver takes all sessions that it finds, saves and ends sessions, and says what is
// stored, until it is killed.
func saveForEver(dir string) error {
	s, err := OpenFileSessions(dir, FileSessionsOptions{})
	if err != nil {
		return err
	}
	const sessions = 50
	for n := range sessions {
		if _, err := s.Take(context.Background(), fmt.Sprint("session ", n), "identity"); err == nil {
			fmt.Println("taken", n)
		}
	}
	for round := 1; ; round++ {
		for n := range sessions {
			switch session := fmt.Sprint("session ", n); {
			case n >= 40 && round%5 == 0:
				s.Forget(session)
				fmt.Println("forgetting", n, round)
			default:
				s.Save(session, storedRecord(round, 4_000))
			}
		}
		awaitStored(s)
		fmt.Println("stored", sessions, round)
	}
}

// holdSessions holds a folder until its input ends.
func holdSessions(dir string) error {
	if _, err := OpenFileSessions(dir, FileSessionsOptions{}); err != nil {
		return err
	}
	fmt.Println("holding")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startSessionsChild starts a process in a folder. It is killed when the test ends.
func startSessionsChild(t *testing.T, what, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	child := exec.CommandContext(ctx, self)
	child.Env = append(os.Environ(), sessionsChild+"="+what+" "+dir)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.StdinPipe(); err != nil { // it ends with this process
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Process.Kill() // it may have ended
		child.Wait()
	})
	return child, bufio.NewScanner(output)
}

// A process is killed while it writes, in many places of its work, and is started again. Each
// time it finds every session with the record that was stored, or a later one, and no session
// that had ended before.
//
// Guarantees: G-0080.5
func TestSessionsSurviveKills(t *testing.T) {
	dir := testenv.Dir(t)
	for kill := range 8 {
		child, output := startSessionsChild(t, "save", dir)
		taken, stored, forgotten := 0, 0, false
		for line := 0; line < 2_000 && output.Scan(); line++ {
			var n, round int
			switch text := output.Text(); {
			case strings.HasPrefix(text, "taken "):
				taken++
			default:
				if _, err := fmt.Sscanf(text, "stored %d %d", &n, &round); err == nil {
					stored, forgotten = round, false
				} else if _, err := fmt.Sscanf(text, "forgetting %d %d", &n, &round); err == nil {
					forgotten = true
				}
			}
			if stored > 0 && line > 60+37*kill {
				break
			}
		}
		child.Process.Kill()
		for output.Scan() { // what it had stored before it was killed
			var n, round int
			if _, err := fmt.Sscanf(output.Text(), "stored %d %d", &n, &round); err == nil {
				stored, forgotten = round, false
			} else if strings.HasPrefix(output.Text(), "forgetting") {
				forgotten = true
			}
		}
		child.Wait() // closes the output
		if stored == 0 || kill > 0 && taken < 40 {
			t.Fatalf("kill %d: %d sessions were taken, and %d rounds stored", kill, taken, stored)
		}
		checkKilled(t, dir, stored, forgotten)
	}
}

// checkKilled checks what a process has left that had stored so many rounds, and was perhaps
// ending sessions.
func checkKilled(t *testing.T, dir string, stored int, ending bool) {
	t.Helper()
	s := openSessions(t, dir, FileSessionsOptions{})
	defer s.Close()
	if r := s.Report(); r.Damaged > 0 {
		t.Errorf("%d places of the file are damaged", r.Damaged)
	}
	for n := range 50 {
		r, err := s.Take(t.Context(), fmt.Sprint("session ", n), "identity")
		round := int(r.Streams)
		ended := n >= 40 && (stored%5 == 0 || stored%5 == 4 && ending)
		switch {
		case err != nil && !ended:
			t.Fatalf("session %d was stored in round %d, and Take got %v", n, stored, err)
		case err == nil && (round < stored || round > stored+1):
			t.Fatalf("session %d was stored in round %d, and Take got round %d", n, stored, round)
		}
		s.Free(fmt.Sprint("session ", n))
	}
}

// A second process learns that the folder is in use, and when the first one was killed, it is
// not any more.
//
// Guarantees: G-0080.7
func TestFolderOfAnotherProcess(t *testing.T) {
	dir := filepath.Join(testenv.Dir(t), "new", "folder")
	child, output := startSessionsChild(t, "hold", dir)
	if !output.Scan() || output.Text() != "holding" {
		t.Fatalf("the process printed %q", output.Text())
	}
	if s, err := OpenFileSessions(dir, FileSessionsOptions{}); err == nil || !strings.Contains(err.Error(), "another process keeps its sessions here") {
		t.Fatalf("opened %v, %v", s, err)
	}
	child.Process.Kill()
	child.Wait()
	openSessions(t, dir, FileSessionsOptions{})
}
