//go:build unix

package guide

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// The test binary is also the command that waits for a server; see run.
func TestMain(m *testing.M) {
	if address := os.Getenv("GUIDE_WAIT_FOR"); address != "" {
		for range time.Tick(5 * time.Millisecond) {
			if c, err := net.Dial("tcp", address); err == nil {
				c.Close()
				os.Exit(0)
			}
		}
	}
	testenv.Once()
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}

func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "guide", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return files
}

// TestCodeIsFresh compares the code on the pages with the programs. With -update it
// rewrites the pages.
func TestCodeIsFresh(t *testing.T) {
	for _, file := range pages(t) {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := Update(root, string(page))
		switch {
		case err != nil:
			t.Errorf("%s: %v", file, err)
		case fresh == string(page):
		case *update:
			if err := os.WriteFile(file, []byte(fresh), 0o600); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s shows other code than its program; go test ./internal/tools/guide -update copies it", file)
		}
	}
}

// TestCommandsDoWhatThePagesSay runs the commands of every page in a shell, with the
// programs of examples/guide and bowline in its path.
//
// Guarantees: G-0053.3
func TestCommandsDoWhatThePagesSay(t *testing.T) {
	programs := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", programs, "./cmd/bowline", "./examples/guide/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, file := range pages(t) {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, console := range Consoles(string(page)) {
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(file), console.Line), func(t *testing.T) {
				t.Parallel()
				run(t, programs, console)
			})
		}
	}
}

// run runs one block. A page has port 8080, and 8081 for a second server; the test
// replaces them by free ports. It waits until a server that was started in the background
// listens at the first port of its line.
func run(t *testing.T, programs string, console Console) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first, second := freePort(t), freePort(t)
	var script strings.Builder
	for line := range strings.Lines(console.Commands) {
		script.WriteString(strings.NewReplacer("8080", first, "8081", second).Replace(line))
		if strings.Contains(line, " & ") {
			port := first
			if at := strings.Index(line, "8081"); at >= 0 && at < strings.Index(line, "8080") {
				port = second
			}
			fmt.Fprintf(&script, "GUIDE_WAIT_FOR=127.0.0.1:%s %s\n", port, os.Args[0])
		}
	}
	shell := exec.CommandContext(ctx, "sh", "-e", "-c", script.String())
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = 10 * time.Second
	var out, errors bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &errors
	err := shell.Run()
	got := strings.NewReplacer(first, "8080", second, "8081").Replace(out.String())
	if err != nil || !Matches(console.Output, got) {
		t.Errorf("%v\nprinted\n%s\nthe page shows\n%s\nstandard error\n%s", err, got, console.Output, &errors)
	}
}

// freePort returns a port that is free. No system gives such a port to a process that asks
// for any, so nobody else takes it before the program of the page listens there.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprint("127.0.0.1:", 20_000+rand.N(10_000))
		listener, err := net.Listen("tcp", address)
		if err != nil && t.Context().Err() == nil {
			continue
		}
		if err == nil {
			err = listener.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(address, "127.0.0.1:")
	}
}
