// Command release makes what people install of the working tree.
//
//	go run ./internal/tools/release proxy FOLDER    its modules, at the version to come, for GOPROXY=file://FOLDER
//	go run ./internal/tools/release build FOLDER    a release of the commit: see RELEASING.md
//
// It needs git, and runs at the root of the repository. It pushes nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: release proxy FOLDER, or release build [-rehearsal] [-targets linux/amd64,...] FOLDER")

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	targets := flags.String("targets", allTargets, "`systems` to build for")
	rehearsal := flags.Bool("rehearsal", false, "go on if CHANGELOG.md does not have the version yet")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errUsage
	}
	folder, err := filepath.Abs(flags.Arg(0))
	if err != nil {
		return err
	}
	switch args[0] {
	case "proxy":
		version, err := versionToCome(".")
		if err != nil {
			return err
		}
		if err := serve(".", version, folder); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s of %d modules is at GOPROXY=file://%s\n", version, len(released), filepath.ToSlash(folder))
		return err
	case "build":
		return build(".", folder, strings.Split(*targets, ","), *rehearsal, out)
	default:
		return errUsage
	}
}
