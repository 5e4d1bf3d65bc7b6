//go:build install

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// write makes a file of a program.
func (n *newcomer) write(folder, name, text string) {
	n.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// TestInstall installs both commands as somebody does who has no clone, and then does what README says: it builds the server and calls it, and
// a program with the client and the handler.
//
// Guarantees: G-0105.1
func TestInstall(t *testing.T) {
	n := newNewcomer(t)
	command := filepath.Join(n.home, "go", "bin", "bowline")
	t.Run("README", func(t *testing.T) {
		n.T = t
		readme := readREADME(t)
		for name, text := range map[string]string{"adder": readme.server, "program": readme.program()} {
			folder := filepath.Join(n.home, name)
			n.write(folder, "main.go", text)
			n.output(folder, "go", "mod", "init", name)
			n.output(folder, "go", "get", prefix+"@"+n.version)
			n.output(folder, "go", "mod", "tidy")
			n.output(folder, "go", "build", "-o", filepath.Join(n.home, name+".exe"), ".")
		}
		if err := os.Rename(filepath.Join(n.home, "adder.exe"), filepath.Join(n.home, "adder", "adder")); err != nil {
			t.Fatal(err)
		}
		if got := n.output(filepath.Join(n.home, "adder"), filepath.Join(n.home, "program.exe")); got != "5\n" {
			t.Errorf("the client of README prints %q, want 5", got)
		}
		n.output(n.home, "go", "install", modulePath("cmd/bowline")+"@"+n.version)
		if got := n.output(filepath.Join(n.home, "adder"), append([]string{command}, readme.call[1:]...)...); got != "5\n" {
			t.Errorf("%s prints %q, want 5", strings.Join(readme.call, " "), got)
		}
	})
	n.T = t
	for _, folder := range []string{"cmd/bowline", "cmd/bowline/full/bowline"} {
		n.output(n.home, "go", "install", modulePath(folder)+"@"+n.version)
		if got := n.output(n.home, command, "version"); !strings.HasPrefix(got, "bowline version "+n.version) {
			t.Errorf("bowline version of %s prints %q, want %s", folder, got, n.version)
		}
	}
}

// TestJoinAClone does what README says to who has a clone: it joins it with a module by go work.
func TestJoinAClone(t *testing.T) {
	n := &newcomer{T: t, home: t.TempDir(), environment: append(os.Environ(), "GOWORK=", "GOFLAGS=-trimpath", "GOPROXY=off")}
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(n.home, "bowline")); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(n.home, "program")
	n.write(folder, "main.go", readREADME(t).program())
	n.write(folder, "modules.go", "package main\n\nimport (\n\t_ \""+prefix+"/auth/keyring\"\n\t_ \""+prefix+"/telemetry/otel\"\n)\n")
	n.output(folder, "go", "mod", "init", "program")
	for _, line := range readREADME(t).join {
		n.output(folder, strings.Fields(line)...)
	}
	n.output(folder, "go", "build", "-o", os.DevNull, ".")
}

// What README shows to who begins.
type readme struct {
	server          string   // a whole program
	handler, client string   // parts of others
	call            []string // the command that calls the server
	join            []string // the commands that join a clone
}

var blocks = regexp.MustCompile("(?s)\n```(go|console)\n(.*?)\n```\n")

func readREADME(t *testing.T) (r readme) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
		switch code := block[2]; {
		case strings.HasPrefix(code, "package main"):
			r.server = code
		case strings.HasPrefix(code, "endpoint :="):
			r.handler = code
		case strings.HasPrefix(code, "c := client.New"):
			r.client = code
		case strings.HasPrefix(code, "$ go work init"):
			r.join = strings.Split(strings.TrimPrefix(code, "$ "), "\n$ ")
		}
		for line := range strings.Lines(block[2]) {
			if call, found := strings.CutPrefix(line, "$ bowline call "); found && strings.Contains(call, "./adder") {
				r.call = append([]string{"bowline", "call"}, strings.Fields(call)...)
			}
		}
	}
	if r.server == "" || r.handler == "" || r.client == "" || r.call == nil || r.join == nil {
		t.Fatalf("README has no longer each of %+v", r)
	}
	return r
}

// program returns a program with the client, and the handler of the server.
func (r readme) program() string {
	return fmt.Sprintf(`package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"%[1]s/features/client"
	"%[1]s/features/server"
	"%[1]s/protocol"
	"%[1]s/transport/stdio"
	"%[1]s/transport/streamable"
)

func run(ctx context.Context) error {
%[2]s
	return nil
}

func serve(ctx context.Context, s *server.Server) error {
%[3]s
	return err
}

func main() {
	_ = serve
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
`, prefix, r.client, r.handler)
}
