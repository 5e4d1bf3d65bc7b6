//go:build install

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A newcomer is somebody with Go, an empty folder, and the modules of this repository at a proxy.
type newcomer struct {
	*testing.T
	home        string
	version     string
	environment []string
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	n := &newcomer{T: t, home: t.TempDir()}
	var err error
	if n.version, err = versionToCome(repository); err != nil {
		t.Fatal(err)
	}
	proxy := filepath.Join(n.home, "proxy")
	if err := serve(repository, n.version, proxy); err != nil {
		t.Fatal(err)
	}
	known := strings.TrimSpace(n.output(".", "go", "env", "GOMODCACHE"))
	remote := strings.TrimSpace(n.output(".", "go", "env", "GOPROXY"))
	n.environment = append(os.Environ(),
		"GOPATH="+filepath.Join(n.home, "go"), "GOMODCACHE=", "GOBIN=", "GOWORK=off",
		// What this machine has downloaded already comes from there.
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(known, "cache", "download")+","+remote,
		"GONOSUMDB="+prefix, "GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0",
		"PATH="+filepath.Join(n.home, "go", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return n
}

// output runs a command in a folder and returns what it prints.
func (n *newcomer) output(folder string, args ...string) string {
	n.Helper()
	cmd := exec.CommandContext(n.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = folder, n.environment
	text, err := cmd.CombinedOutput()
	if err != nil {
		n.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

// TestInstall installs both commands as somebody does who has no clone.
//
// Guarantees: G-0105.1
func TestInstall(t *testing.T) {
	n := newNewcomer(t)
	command := filepath.Join(n.home, "go", "bin", "bowline")
	for _, folder := range []string{"cmd/bowline", "cmd/bowline/full/bowline"} {
		n.output(n.home, "go", "install", modulePath(folder)+"@"+n.version)
		if got := n.output(n.home, command, "version"); !strings.HasPrefix(got, "bowline version "+n.version) {
			t.Errorf("bowline version of %s prints %q, want %s", folder, got, n.version)
		}
	}
}
