//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a test has started ends with it, also in a process group of its own.
func TestWhatATestHasStartedIsEnded(t *testing.T) {
	writeModule(t, map[string]string{
		"go.mod":   small["go.mod"],
		"small.go": "package small\n\nfunc small() int { return 1 + 1 }\n",
		"small_test.go": `package small

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
)

func TestSmall(t *testing.T) {
	child := exec.Command("sh", "-c", "exec sleep 600")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil || small() != 2 {
		t.Fatal(err)
	}
	fmt.Println("child", child.Process.Pid)
}
`,
	})
	c, all := newTestRunner(t)
	_, output, err := c.try(t.Context(), 0, []string{"TestSmall"})
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`child (\d+)`).FindStringSubmatch(output)
	if found == nil {
		t.Fatalf("no child was started:\n%s", output)
	}
	child, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	if runtime.GOOS == "linux" { // other systems end the group of the test alone
		for deadline := time.Now().Add(time.Minute); !ended(child); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("the child %d still runs", child)
			}
		}
	}
	// Processes that start one another without end stop.
	t.Setenv(generation, "9")
	if found, err := c.judge(t.Context(), &all[0], []string{"TestSmall"}); err != nil || found.verdict != killed {
		t.Errorf("the ninth process of its kind: %v, %v", found, err)
	}
}

// ended says whether a process is gone, or waits for somebody to notice that it has ended.
func ended(id int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	return err != nil || strings.Contains(string(text), ") Z ")
}
