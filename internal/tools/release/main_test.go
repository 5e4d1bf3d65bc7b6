package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const repository = "../../.."

func TestVersionToCome(t *testing.T) {
	version, err := versionToCome(repository)
	if err != nil || !strings.HasPrefix(version, "v") {
		t.Errorf("the version to come is %q, %v", version, err)
	}
}

// TestVersionToComeIsOne changes one module of a tree.
func TestVersionToComeIsOne(t *testing.T) {
	for name, c := range map[string]struct{ mod, want string }{
		"no requirement":  {"module m\n", "no module requires"},
		"another version": {"module m\nrequire " + prefix + " v0.2.0\n", "want v0.1.0 as elsewhere"},
		"a folder":        {"module m\nreplace x => ../x\n", "replaces x"},
		"no module":       {"modul m\n", "unknown directive"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, folder := range released {
				text := "module m\nrequire " + prefix + " v0.1.0\n"
				if folder == "." || name == "no requirement" {
					text = "module m\n"
				}
				if folder == "cmd/bowline/full/bowline" {
					text = c.mod
				}
				write(t, filepath.Join(root, folder, "go.mod"), text)
			}
			if _, err := versionToCome(root); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"proxy"}, {"x", "y"}} {
		if err := run(args, os.Stderr); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
