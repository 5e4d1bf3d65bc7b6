// Command release makes what people install of the working tree.
//
//	go run ./internal/tools/release proxy FOLDER    its modules, at the version to come, for GOPROXY=file://FOLDER
//
// It needs git, and runs at the root of the repository.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

const usage = "usage: release proxy FOLDER"

func run(args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%s", usage)
	}
	folder, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	version, err := versionToCome(".")
	if err != nil {
		return err
	}
	switch args[0] {
	case "proxy":
		if err := serve(".", version, folder); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s of %d modules is at GOPROXY=file://%s\n", version, len(released), filepath.ToSlash(folder))
		return err
	default:
		return fmt.Errorf("%s", usage)
	}
}
