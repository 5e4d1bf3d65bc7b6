// Command ossfuzz lists the fuzz targets of the repository, for build.sh beside it: of each the folder, the package, the function and a name for
// its program.
//
//	go run ./internal/tools/ossfuzz
//
// The files project.yaml, Dockerfile and build.sh are those of a project of OSS-Fuzz. The repository is not one yet.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strings"
)

const module = "github.com/bowline-mcp/bowline"

func main() {
	all, err := targets(os.DirFS("."))
	for _, t := range all {
		fmt.Println(t.folder, path.Join(module, t.folder), t.function, t.name())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ossfuzz:", err)
		os.Exit(1)
	}
}

// A target is a function that the go command can fuzz.
type target struct{ folder, function string }

// name returns the name of the target's program, which no other one has.
func (t target) name() string {
	if t.folder == "." {
		return t.function
	}
	return strings.ReplaceAll(t.folder, "/", "_") + "_" + t.function
}

// targets returns the fuzz targets below the root of the repository, in all its modules.
func targets(root fs.FS) (all []target, err error) {
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir():
			if file != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
				all = append(all, target{path.Dir(file), f.Name.Name})
			}
		}
		return nil
	})
	return all, err
}
