package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestInsertKeepsTheOrderOfPaths(t *testing.T) {
	const before = "github.com/a/a v1.0.0 h1:a=\ngithub.com/zalando/z v1.10.0 h1:z=\ngithub.com/zalando/z v1.9.0 h1:z=\n"
	ours := []string{prefix + "/auth/keyring v0.1.0 h1:k=", prefix + " v0.1.0/go.mod h1:m=", prefix + " v0.1.0 h1:b="}
	want := "github.com/a/a v1.0.0 h1:a=\n" + ours[2] + "\n" + ours[1] + "\n" + ours[0] + "\n" +
		"github.com/zalando/z v1.10.0 h1:z=\ngithub.com/zalando/z v1.9.0 h1:z=\n"
	if got := insert(before, ours); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := insert("", []string{"x"}); got != "x\n" {
		t.Errorf("an empty go.sum becomes %q", got)
	}
	if got := insert(before, nil); got != before {
		t.Errorf("nothing to add: %q", got)
	}
}

// TestARequirementIsReleasedBefore shows a module that requires one whose sum is not known.
func TestARequirementIsReleasedBefore(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "go.mod"), "module m\nrequire "+prefix+" v0.1.0\n")
	write(t, filepath.Join(folder, "go.sum"), "")
	if err := addSums(folder, "v0.1.0", nil); err == nil || !strings.Contains(err.Error(), "is released later") {
		t.Errorf("got the error %v", err)
	}
	if err := addSums(folder, "v0.1.0", map[string]sum{prefix: {"h1:b=", "h1:m="}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(folder, "go.sum")); string(got) != prefix+" v0.1.0 h1:b=\n"+prefix+" v0.1.0/go.mod h1:m=\n" {
		t.Errorf("go.sum is %q", got)
	}
}

// TestAReleaseIsTheSameOnceMore makes the commit and the tags of a release from two clones in different folders.
func TestAReleaseIsTheSameOnceMore(t *testing.T) {
	folder := t.TempDir()
	origin := filepath.Join(folder, "origin")
	as := []string{"-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"}
	if err := os.Mkdir(origin, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(origin, "go.sum"), "")
	git := func(in string, args ...string) string {
		t.Helper()
		said, err := command(in, append(os.Environ(), "GIT_COMMITTER_DATE=2001-02-03T04:05:06+07:00"), "git", args...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	git(origin, "init", "--quiet")
	git(origin, "add", ".")
	git(origin, append(as, "commit", "--quiet", "--message", "m")...)
	var froms [2]source
	var tags [2]string
	for i, clone := range []string{"one", "two"} {
		in := filepath.Join(folder, clone)
		git(folder, "clone", "--quiet", "origin", clone)
		for _, setting := range []string{"user.name=n", "user.email=e@example.com", "commit.gpgsign=false", "tag.gpgsign=false"} {
			name, value, _ := strings.Cut(setting, "=")
			git(in, "config", name, value)
		}
		write(t, filepath.Join(in, "go.sum"), "x\n")
		var err error
		if froms[i], err = commitAndTag(in, "v0.1.0"); err != nil {
			t.Fatal(err)
		}
		tags[i] = git(in, "show-ref", "--tags")
	}
	if froms[0].commit != froms[1].commit || tags[0] != tags[1] || strings.Count(tags[0], "\n") != len(released) {
		t.Errorf("the two differ: %+v\n%s", froms, strings.Join(tags[:], "\n"))
	}
	if want := time.Date(2001, 2, 2, 21, 5, 6, 0, time.UTC); !froms[0].time.Equal(want) {
		t.Errorf("the commit is of %v, want %v like the one before", froms[0].time, want)
	}
}

func built() artifact {
	return artifact{name: "bowline", target: "linux/amd64", sum: "0a", build: &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: modulePath("cmd/bowline"), Version: "v0.1.0"},
		Deps: []*debug.Module{{Path: "example.test/d", Version: "v1.2.3", Sum: "h1:AAAA"}},
	}}
}

// TestSBOMHasEveryModule reads an SBOM as a program would that knows only JSON.
func TestSBOMHasEveryModule(t *testing.T) {
	a := built()
	text, err := sbom(a, source{version: "v0.1.0", commit: "c", time: time.Unix(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		SPDXVersion string
		Packages    []struct {
			Name, VersionInfo, Comment string
			ExternalRefs               []struct{ ReferenceLocator string }
		}
		Relationships []struct{ RelationshipType string }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if document.SPDXVersion != "SPDX-2.3" || len(document.Packages) != 4 || len(document.Relationships) != 4 {
		t.Fatalf("got %+v", document)
	}
	if d := document.Packages[3]; d.Name != "example.test/d" || d.Comment != "go.sum h1:AAAA" || d.ExternalRefs[0].ReferenceLocator != "pkg:golang/example.test/d@v1.2.3" {
		t.Errorf("the dependency is %+v", d)
	}
	a.build.Deps[0].Replace = &debug.Module{Path: "../d"}
	if _, err := sbom(a, source{}); err == nil || !strings.Contains(err.Error(), "no replaced module") {
		t.Errorf("a replaced module: %v", err)
	}
}

func TestProvenanceSaysThatItIsUnsigned(t *testing.T) {
	text, err := provenance([]artifact{built()}, source{version: "v0.1.0", commit: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"_type": "https://in-toto.io/Statement/v1"`, `"sha256": "0a"`, `"gitCommit": "0123"`, "unsigned", `"go": "go1.26.8"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the statement has no %s:\n%s", want, text)
		}
	}
}
