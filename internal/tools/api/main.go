// Command api keeps docs/api.txt, which has a line for everything that the packages people import export.
//
//	go run ./internal/tools/api -update    write it
//	go run ./internal/tools/api -check     fail if it is stale, or if a line of the last release is missing without
//	                                       an entry under Changed in CHANGELOG.md; CI does that
//
// CONTRIBUTING.md says what is compatible.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

// page is where the lines are, below the root of the repository.
const page = "docs/api.txt"

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	update := flags.Bool("update", false, "write "+page)
	compare := flags.Bool("check", false, "fail if "+page+" is stale, or if a name is gone that CHANGELOG.md does not mention")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0 || *update == *compare:
		return errors.New("usage: api -update, or api -check")
	}
	packages, err := load(".")
	if err != nil {
		return err
	}
	lines := list(packages)
	if *update {
		return os.WriteFile(page, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	return check(".", lines, out)
}

// check compares what is exported with the page, and with what was exported at the last release.
func check(root string, lines []string, out io.Writer) error {
	written, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return fmt.Errorf("%w: go run ./internal/tools/api -update writes it", err)
	}
	if string(written) != strings.Join(lines, "\n")+"\n" {
		return fmt.Errorf("%s is stale: go run ./internal/tools/api -update writes it", page)
	}
	version, commit := base(root)
	if commit == "" {
		fmt.Fprintln(out, "no release and no origin/main is known here: nothing was compared")
		return nil
	}
	earlier, err := git(root, "show", commit+":"+page)
	if err != nil {
		fmt.Fprintf(out, "%s has no %s: nothing was compared\n", commit, page)
		return nil
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if unsaid := unmentioned(strings.Split(earlier, "\n"), lines, changed(string(changelog), version)); len(unsaid) > 0 {
		return fmt.Errorf("people who use %s cannot compile, and no entry under \"### Changed\" in CHANGELOG.md names what is missing:\n%s", commit, strings.Join(unsaid, "\n"))
	}
	return nil
}

// base returns the last release, as a version and a commit. Before the first one it is what origin/main and this branch have in
// common, and has no version. A clone without either has no base.
func base(root string) (version, commit string) {
	if tag, err := git(root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"); err == nil {
		return strings.TrimPrefix(tag, "v"), tag
	}
	commit, err := git(root, "merge-base", "HEAD", "origin/main")
	if err != nil {
		return "", ""
	}
	return "", commit
}

// git runs git, and returns what it prints without the last line end.
func git(root string, args ...string) (string, error) {
	command := exec.Command("git", args...)
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSuffix(string(output), "\n"), nil
}
