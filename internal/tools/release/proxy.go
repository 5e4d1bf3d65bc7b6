package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// prefix begins the path of every module of the repository, and is that of the root.
const prefix = "github.com/bowline-mcp/bowline"

// released are the folders of the modules that people install, each after those that it requires.
var released = []string{".", "auth/keyring", "telemetry/otel", "cluster/nats", "cluster/nats/embedded", "gateway/gosdk", "transport/websocket", "cmd/bowline", "cmd/bowline/full/bowline"}

// modulePath is the path of the module in a folder.
func modulePath(folder string) string { return path.Join(prefix, folder) }

// tag is the git tag of a version of the module in a folder.
func tag(folder, version string) string { return path.Join(folder, version) }

// versionToCome is the version at which the modules of a working tree require each other.
func versionToCome(root string) (string, error) {
	version := ""
	for _, folder := range released {
		name := filepath.Join(root, folder, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("reading a module: %w", err)
		}
		mod, err := modfile.Parse(name, text, nil)
		if err != nil {
			return "", fmt.Errorf("reading a module: %w", err)
		}
		if len(mod.Replace) > 0 {
			return "", fmt.Errorf("%s replaces %s: go install refuses that", name, mod.Replace[0].Old.Path)
		}
		for _, required := range mod.Require {
			if !ours(required.Mod.Path) {
				continue
			}
			if version != "" && required.Mod.Version != version {
				return "", fmt.Errorf("%s requires %s, want %s as elsewhere", name, required.Mod, version)
			}
			version = required.Mod.Version
		}
	}
	if version == "" {
		return "", errors.New("no module requires another one")
	}
	return version, nil
}

// ours says whether a module is of this repository.
func ours(path string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// serve writes the modules of a working tree into a folder as GOPROXY=file://folder reads them: the files that git knows, or
// would know after git add.
func serve(root, version, folder string) error {
	for _, released := range released {
		if err := serveModule(root, released, version, folder); err != nil {
			return fmt.Errorf("serving %s: %w", modulePath(released), err)
		}
	}
	return nil
}

func serveModule(root, folder, version, proxy string) error {
	files, err := filesOf(root, folder)
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	of := module.Version{Path: modulePath(folder), Version: version}
	if err := zip.Create(&packed, of, files); err != nil {
		return err
	}
	// The time says only when this was asked for: it is in no sum.
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", version, time.Unix(0, 0).UTC().Format(time.RFC3339))
	in := filepath.Join(proxy, filepath.FromSlash(of.Path), "@v")
	if err := os.MkdirAll(in, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(info), version + ".mod": mod, version + ".zip": packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(in, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// filesOf lists what the go command packs of a tag: the files below the module's folder (package zip leaves out other
// modules in it), and the license of the repository if the folder has none.
func filesOf(root, folder string) ([]zip.File, error) {
	list := exec.Command("git", "-C", filepath.Join(root, folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []zip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		file := packedFile{name: name, at: filepath.Join(root, folder, filepath.FromSlash(name))}
		if _, err := file.Lstat(); errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		files = append(files, file)
	}
	const license = "LICENSE"
	if !slices.ContainsFunc(files, func(f zip.File) bool { return f.Path() == license }) {
		files = append(files, packedFile{name: license, at: filepath.Join(root, license)})
	}
	return files, nil
}

// A packedFile is a file of a module.
type packedFile struct{ name, at string }

func (f packedFile) Path() string                 { return f.name }
func (f packedFile) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.at) }
func (f packedFile) Open() (io.ReadCloser, error) { return os.Open(f.at) }
