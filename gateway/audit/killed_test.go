package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A process of the test writes until it is killed.
const writerVariable = "AUDIT_TEST_WRITES_TO"

// writeForEver writes until the process is killed, or that which has started it has ended.
func writeForEver(path string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	key, err := ReadKey(path + ".key")
	if err == nil {
		var trail *Trail
		if trail, err = Open(path, Options{Key: key, Sync: len(os.Args) > 1}); err == nil { // half of the processes note each record
			for i := 0; ; i++ {
				trail.Write(context.Background(), Record{Time: time.Now(), Name: fmt.Sprint(i), Reason: strings.Repeat("x", i%400)})
			}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// Processes that are killed while they write leave a trail that verifies, and that says how many they were.
//
// Guarantees: G-0099.4
func TestProcessesThatAreKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	const kills = 10
	for i := range kills {
		writer := exec.Command(os.Args[0], slices.Repeat([]string{"sync"}, i%2)...)
		writer.Env = append(os.Environ(), writerVariable+"="+path)
		held, err := writer.StdinPipe() // it ends with this process
		if err := errors.Join(err, writer.Start()); err != nil {
			t.Fatal(err)
		}
		before, ended := size(path), make(chan error, 1)
		go func() { ended <- writer.Wait() }()
		for deadline := time.Now().Add(2 * time.Minute); size(path) < before+50_000; {
			if time.Now().After(deadline) {
				t.Fatalf("it has written %d bytes", size(path)-before)
			}
			select {
			case err := <-ended:
				t.Fatalf("it does not write: %v", err)
			default:
				runtime.Gosched()
			}
		}
		if err := writer.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended
		_ = held.Close()
	}
	key, err := ReadKey(path + ".key")
	if err != nil {
		t.Fatal(err)
	}
	trail, err := Open(path, Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(path, key); err != nil || s.Unclean != kills || s.Last < 100 {
		t.Errorf("%+v, %v", s, err)
	}
}

// What a killed process has left of a record is set aside, and the trail says so; so it does if its end was cut off.
//
// Guarantees: G-0099.4
func TestTornAndCutTrails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	lines := trailOf(t, path, 3)
	for number, half := range []string{lines[0][:20], strings.Repeat("x", 5000)} { // also more than the next records take
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")+half), 0o600); err != nil {
			t.Fatal(err)
		}
		end := len(lines)
		lines = trailOf(t, path, 1)
		if want := fmt.Sprintf(`"event":"torn","count":%d`, len(half)); !strings.Contains(lines[end], want) {
			t.Errorf("%s, want %s", lines[end], want)
		}
		if torn, err := filepath.Glob(path + ".torn-*"); err != nil || len(torn) != number+1 {
			t.Errorf("%q, %v", torn, err)
		}
		if text, err := os.ReadFile(fmt.Sprint(path, ".torn-", end+1)); err != nil || string(text) != half {
			t.Errorf("%q was set aside, want %q: %v", text, half, err)
		}
		if _, err := Verify(path, testKey); err != nil {
			t.Error(err)
		}
	}
	left := len(lines) - 3
	if err := os.WriteFile(path, []byte(strings.Join(lines[:left], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if lines = trailOf(t, path, 0); !strings.Contains(lines[left], `"event":"cut","count":3`) {
		t.Errorf("%q", lines[left])
	}
	var broken *BrokenError
	if _, err := Verify(path, testKey); !errors.As(err, &broken) || broken.Number != uint64(left) || broken.Line != left+1 {
		t.Errorf("a cut: %v", err)
	}
}
