package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs are what the suite runs, built and installed.
type Programs struct {
	Bowline string // the path of the bowline command
	Peer    string // the path of cmd/peer
	Folder  string // a folder with the one file hello.txt, which servers may read
}

// BuildPrograms builds into a folder, and installs from npm what is missing.
func BuildPrograms(folder string) (*Programs, error) {
	for _, p := range npmPackages() {
		if err := p.install(); err != nil {
			return nil, err
		}
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, err
	}
	p := &Programs{
		Bowline: filepath.Join(folder, "bowline.exe"),
		Peer:    filepath.Join(folder, "peer.exe"),
		Folder:  filepath.Join(folder, "files"),
	}
	if err := build("..", p.Bowline, "./cmd/bowline"); err != nil { // the command is in another module
		return nil, err
	}
	if err := build(".", p.Peer, "./cmd/peer"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(p.Folder, 0o755); err != nil {
		return nil, err
	}
	return p, os.WriteFile(filepath.Join(p.Folder, "hello.txt"), []byte("hello"), 0o644)
}

func build(module, output, path string) error {
	command := exec.Command("go", "build", "-ldflags=-s -w", "-o", output, path) // links in half the time
	command.Dir = module
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", path, err, output)
	}
	return nil
}

// moduleVersion returns the version of a module that this module requires.
func moduleVersion(path string) (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", path, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(output)), "v"), nil
}
