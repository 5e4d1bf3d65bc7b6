//go:build linux

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// BenchmarkUpFirstAnswer measures the time from the start of `bowline up` to its first list of tools, with 20 servers whose lists are known from
// an earlier run, and the resident memory of its process when all are ready and idle, without its children:
//
//	cd cmd/bowline && go test ./internal/command -run '^$' -bench UpFirstAnswer -benchtime 5x
func BenchmarkUpFirstAnswer(b *testing.B) {
	path, names := twentyServers(b)
	rewrite(b, path, `{"mcpServers": {`, `{"bowline": {"catalogue": "catalogue.json"}, "mcpServers": {`)
	listed := func() (*upRun, time.Duration) {
		began := time.Now()
		up := startUp(b, path)
		session := up.client("")
		tools := 0
		for _, err := range session.Tools(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			tools++
		}
		if tools == 0 {
			b.Fatal("no tools")
		}
		return up, time.Since(began)
	}
	up, _ := listed()
	for _, name := range names {
		awaitServer(b, path, name, func(s admin.ServerReport) bool { return s.State == admin.Ready && s.Tools > 0 })
	}
	up.end()
	var first, memory time.Duration
	for b.Loop() {
		up, took := listed()
		first += took
		for _, name := range names {
			awaitServer(b, path, name, func(s admin.ServerReport) bool { return s.State == admin.Ready })
		}
		memory += time.Duration(residentMB(b, up.cmd.Process.Pid))
		up.end()
	}
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms/first-answer")
	b.ReportMetric(float64(memory)/float64(b.N), "MB-resident")
	b.ReportMetric(0, "ns/op")
}

// TestMemoryOfAnIdleGateway reads how much memory `bowline up` has when twenty servers are ready and idle, without its children.
func TestMemoryOfAnIdleGateway(t *testing.T) {
	testenv.Crowd(t)
	path, names := twentyServers(t)
	up := startUp(t, path)
	defer up.end()
	for _, name := range names {
		awaitServer(t, path, name, func(s admin.ServerReport) bool { return s.State == admin.Ready && s.Tools > 0 })
	}
	if got := residentMB(t, up.cmd.Process.Pid); got > 60 {
		t.Errorf("%d MB are resident, want at most 60", got)
	} else {
		t.Logf("%d MB are resident", got)
	}
}

func twentyServers(t testing.TB) (path string, names []string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mcp.json")
	for i := range 20 {
		names = append(names, fmt.Sprint("server", i))
	}
	mcpFile(t, path, names...)
	return path, names
}

func residentMB(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kB int
	if _, err := fmt.Sscan(after, &kB); err != nil {
		t.Fatal(err)
	}
	return kB / 1024
}
