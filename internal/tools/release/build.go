package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A program is a command that is released as a file.
type program struct {
	name, folder string
	largest      int64 // bytes, which may only become fewer: ADR-0105 wants 25 MB of the lean command; 0: as large as it is
}

var programs = []program{{"bowline", "cmd/bowline", 25_000_000}, {"bowline-full", "cmd/bowline/full/bowline", 0}}

const allTargets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// build makes a release in a folder that does not exist: in repository/ a clone with a commit that has the sums of its
// modules, and with their tags; and in files/ what people download. Nothing leaves the folder: a person pushes the tags.
func build(root, folder string, targets []string, rehearsal bool, out io.Writer) error {
	repository, proxy, files := filepath.Join(folder, "repository"), filepath.Join(folder, "proxy"), filepath.Join(folder, "files")
	version, err := prepare(root, folder, rehearsal)
	if err != nil {
		return err
	}
	sums, err := writeSums(repository, version, proxy)
	if err != nil {
		return err
	}
	from, err := commitAndTag(repository, version)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is commit %s, with %d tags\n", version, from.commit, len(released))
	environment, err := checkTags(folder, version, sums)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the go command packs the tags as this program has: the sums are the same")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	var artifacts []artifact
	for _, target := range targets {
		for _, p := range programs {
			a, err := buildTwice(folder, p, target, version, environment)
			if err != nil {
				return fmt.Errorf("building %s for %s: %w", p.name, target, err)
			}
			if setting(a.build, "vcs.revision") != from.commit || a.build.Main.Version != version {
				return fmt.Errorf("%s says it is %s of commit %q, want %s of %s", a.name, a.build.Main.Version, setting(a.build, "vcs.revision"), version, from.commit)
			}
			fmt.Fprintf(out, "%-40s %5.1f MB  %s\n", a.name, float64(a.size)/1e6, a.sum)
			artifacts = append(artifacts, a)
		}
	}
	return describe(files, artifacts, from)
}

// prepare clones the commit that is checked out, and refuses what is not ready for a release.
func prepare(root, folder string, rehearsal bool) (version string, err error) {
	if version, err = versionToCome(root); err != nil {
		return "", err
	}
	changes, err := command(root, nil, "git", "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if len(changes) > 0 {
		return "", fmt.Errorf("there are changes that are not committed:\n%s", changes)
	}
	log, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	if heading := "\n## [" + strings.TrimPrefix(version, "v") + "]"; !rehearsal && !bytes.Contains(log, []byte(heading)) {
		return "", fmt.Errorf("CHANGELOG.md has no heading %q", strings.TrimSpace(heading))
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	_, err = command(root, nil, "git", "clone", "--quiet", ".", filepath.Join(folder, "repository"))
	return version, err
}

// commitAndTag commits the sums, and gives each module its tag. The commit has what the modules' zips have: who builds a
// module of it without go.work has the others checked. Its time is that of the commit before, so that who makes the release
// once more gets the same commit, which is in each program.
func commitAndTag(repository, version string) (source, error) {
	from := source{version: version}
	when, err := command(repository, nil, "git", "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return from, err
	}
	when = strings.TrimSpace(when)
	environment := append(os.Environ(), "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when)
	steps := [][]string{{"commit", "--quiet", "--all", "--message", "Release " + version + ": the sums of its modules"}}
	for _, folder := range released {
		steps = append(steps, []string{"tag", "--annotate", "--message", modulePath(folder) + " " + version, tag(folder, version)})
	}
	for _, step := range steps {
		if _, err := command(repository, environment, "git", step...); err != nil {
			return from, err
		}
	}
	commit, err := command(repository, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return from, err
	}
	from.commit = strings.TrimSpace(commit)
	if from.time, err = time.Parse(time.RFC3339, when); err != nil {
		return from, fmt.Errorf("reading when the commit was made: %w", err)
	}
	return from, nil
}

// buildTwice builds a program from the tagged commit; and once more from other folders, for another user in another time
// zone, and with nothing that was compiled before. Both have to be equal, byte by byte. Modules of this repository come from the proxy, and their sums are in go.sum.
func buildTwice(folder string, p program, target, version string, environment []string) (artifact, error) {
	system, processor, _ := strings.Cut(target, "/")
	name := strings.Join([]string{p.name, version, system, processor}, "_")
	if system == "windows" {
		name += ".exe"
	}
	var built [2][]byte
	for i, clone := range []string{"repository", "again"} {
		environment := append(environment, "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor)
		to := filepath.Join(folder, "files", name)
		if clone == "again" { // nothing of the first build may be seen, and nothing of who runs it
			to = filepath.Join(folder, name)
			environment = append(environment, "GOCACHE="+filepath.Join(folder, "compiled"), "GOMODCACHE="+filepath.Join(folder, "modules again"),
				"USER=another", "LOGNAME=another", "TZ=Pacific/Auckland")
			if _, err := os.Stat(filepath.Join(folder, clone)); errors.Is(err, os.ErrNotExist) {
				if _, err := command(folder, nil, "git", "clone", "--quiet", "repository", clone); err != nil {
					return artifact{}, err
				}
			}
		}
		if _, err := command(filepath.Join(folder, clone, p.folder), environment, "go", "build", "-buildvcs=true", "-ldflags=-s -w", "-o", to, "."); err != nil {
			return artifact{}, err
		}
		var err error
		if built[i], err = os.ReadFile(to); err != nil {
			return artifact{}, err
		}
	}
	if !bytes.Equal(built[0], built[1]) {
		return artifact{}, fmt.Errorf("two builds differ: compare files/%s and %s in %s", name, name, folder)
	}
	if p.largest > 0 && int64(len(built[0])) > p.largest {
		return artifact{}, fmt.Errorf("it has %d bytes, want %d at most", len(built[0]), p.largest)
	}
	if err := os.Remove(filepath.Join(folder, name)); err != nil {
		return artifact{}, err
	}
	return inspect(filepath.Join(folder, "files"), name)
}

// describe writes what says what the artifacts are.
func describe(files string, artifacts []artifact, from source) error {
	var checksums strings.Builder
	for _, a := range artifacts {
		text, err := sbom(a, from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(files, a.name+".spdx.json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&checksums, "%s  %s\n", a.sum, a.name)
	}
	if err := os.WriteFile(filepath.Join(files, "SHA256SUMS"), []byte(checksums.String()), 0o644); err != nil {
		return err
	}
	text, err := provenance(artifacts, from)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(files, "provenance.intoto.json"), append(text, '\n'), 0o644)
}
