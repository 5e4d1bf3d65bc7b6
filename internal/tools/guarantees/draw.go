package main

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
)

// draw takes a few of some names by chance: the seed decides, and nothing else does, so that
// everybody draws the same and nobody can choose.
func draw(names []string, few int, seed string) []string {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(ticket(seed, a), ticket(seed, b)) })
	return names[:min(few, len(names))]
}

func ticket(seed, name string) string {
	sum := sha256.Sum256([]byte(seed + "\x00" + name))
	return string(sum[:])
}

// library are the folders that users import, with what is below them.
var library = []string{"auth", "cluster", "conn", "features", "gateway", "mcpjson", "protocol", "supervisor", "telemetry", "transport"}

// A place is a statement in a function of the library.
type place struct {
	name string // "conn/core.go core.close 3": the third statement of the function
	line int
	text string // its first line
}

// places lists every statement of the library that does something, except in generated code: blocks and
// declarations hold others.
func places(fsys fs.FS) ([]place, error) {
	var all []place
	for _, folder := range library {
		if _, err := fs.Stat(fsys, folder); err != nil {
			continue
		}
		err := fs.WalkDir(fsys, folder, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (path.Base(name) == "testdata" || strings.HasSuffix(path.Base(name), "test")):
				return fs.SkipDir
			case entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			found, err := placesIn(fsys, name)
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for statements in %s: %w", folder, err)
		}
	}
	return all, nil
}

func placesIn(fsys fs.FS, name string) ([]place, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if syntax.Name.Name == "main" || ast.IsGenerated(syntax) {
		return nil, nil
	}
	var all []place
	for _, decl := range syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		number := 0
		ast.Inspect(function.Body, func(node ast.Node) bool {
			switch stmt := node.(type) {
			case *ast.BlockStmt, *ast.LabeledStmt, *ast.EmptyStmt, *ast.DeclStmt:
			case ast.Stmt:
				number++
				at := fset.Position(stmt.Pos())
				first, _, _ := strings.Cut(string(text[at.Offset:]), "\n")
				all = append(all, place{
					name: fmt.Sprintf("%s %s %d", name, declaration.Function(function), number),
					line: at.Line, text: first,
				})
			}
			return true
		})
	}
	return all, nil
}
