package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/sumdb/dirhash"
)

// A sum is what go.sum has of a version of a module: of its files, and of its go.mod.
type sum struct{ Sum, GoModSum string }

// writeSums writes into the go.sum of each released module the sums of those that it requires, and then packs it: its own
// sum depends on that.
func writeSums(repository, version, proxy string) (map[string]sum, error) {
	sums := make(map[string]sum)
	for _, folder := range released {
		if err := addSums(filepath.Join(repository, folder), version, sums); err != nil {
			return nil, fmt.Errorf("writing sums for %s: %w", modulePath(folder), err)
		}
		if err := serveModule(repository, folder, version, proxy); err != nil {
			return nil, fmt.Errorf("packing %s: %w", modulePath(folder), err)
		}
		in := filepath.Join(proxy, filepath.FromSlash(modulePath(folder)), "@v")
		packed, err := dirhash.HashZip(filepath.Join(in, version+".zip"), dirhash.Hash1)
		if err != nil {
			return nil, err
		}
		mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(in, version+".mod")) })
		if err != nil {
			return nil, err
		}
		sums[modulePath(folder)] = sum{packed, mod}
	}
	return sums, nil
}

// addSums adds what a module requires of this repository. Its go.mod lists all of it, also what it needs only indirectly.
func addSums(folder, version string, sums map[string]sum) error {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return err
	}
	var added []string
	for _, required := range mod.Require {
		if !ours(required.Mod.Path) {
			continue
		}
		of, known := sums[required.Mod.Path]
		if !known {
			return fmt.Errorf("%s is released later", required.Mod.Path)
		}
		added = append(added, required.Mod.Path+" "+version+" "+of.Sum, required.Mod.Path+" "+version+"/go.mod "+of.GoModSum)
	}
	name := filepath.Join(folder, "go.sum")
	text, err = os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(insert(string(text), added)), 0o644)
}

// insert adds lines to a go.sum where go mod tidy has them: lines are in the order of paths, and ours are of one prefix.
func insert(text string, added []string) string {
	if len(added) == 0 {
		return text
	}
	slices.Sort(added)
	lines := strings.SplitAfter(text, "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return line > prefix || line == "" })
	return strings.Join(slices.Insert(lines, at, strings.Join(added, "\n")+"\n"), "")
}

// checkTags has the go command fetch each tag from the clone as it fetches a repository of GitHub, and compares the sums. It
// returns the environment in which the release is built: what was fetched is in a module cache of the release.
func checkTags(folder, version string, sums map[string]sum) ([]string, error) {
	said, err := command(folder, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	known, remote, _ := strings.Cut(strings.TrimSpace(said), "\n")
	environment := append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -modcacherw", "GONOSUMDB="+prefix, "GOMODCACHE="+filepath.Join(folder, "modules"))
	direct := append(slices.Clone(environment), "GOPROXY=direct",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+filepath.Join(folder, "repository")+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+prefix)
	// The cache begins empty, so that each tag is really fetched, and keeps what the build needs next.
	for path, want := range sums {
		said, err := command(folder, direct, "go", "mod", "download", "-json", path+"@"+version)
		if err != nil {
			return nil, err
		}
		var got sum
		if err := json.Unmarshal([]byte(said), &got); err != nil {
			return nil, fmt.Errorf("reading what go mod download says: %w", err)
		}
		if got != want {
			return nil, fmt.Errorf("the tag of %s has the sums %v, want %v", path, got, want)
		}
	}
	return append(environment, "GOPROXY=file://"+filepath.Join(folder, "proxy")+",file://"+filepath.Join(known, "cache", "download")+","+remote), nil
}

// command runs a program in a folder and returns its standard output.
func command(folder string, environment []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = folder, environment
	var complaint strings.Builder
	cmd.Stderr = &complaint
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaint.String())
	}
	return string(text), nil
}
