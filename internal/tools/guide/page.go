// Package guide keeps the pages of docs/guide true: the Go code on them is copied
// from programs that are compiled, and the commands on them are run.
package guide

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
)

// A Console is a block of commands of a page, with the output that the page shows.
type Console struct {
	Line     int    // of the page, where the block begins
	Commands string // what a shell runs
	Output   string // of all commands, in order
}

// Update returns the page with the code of its Go blocks copied from the files that
// they name. A line above each block says which:
//
//	<!-- code: examples/guide/weather/main.go forecast Weather -->
//
// The words after the path are functions and types of the file, which are copied with
// their comments. Without any, the whole file is copied.
func Update(root, page string) (string, error) {
	var out []string
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "```go" {
			return "", fmt.Errorf("line %d: no comment says where this code is from", i+1)
		}
		out = append(out, lines[i])
		source, found := strings.CutPrefix(lines[i], "<!-- code: ")
		if !found {
			continue
		}
		end := i + 2
		for end < len(lines) && lines[end] != "```" {
			end++
		}
		if i+1 >= len(lines) || lines[i+1] != "```go" || end == len(lines) {
			return "", fmt.Errorf("line %d: no block of Go code follows", i+1)
		}
		words := strings.Fields(strings.TrimSuffix(source, "-->"))
		if len(words) == 0 {
			return "", fmt.Errorf("line %d: the comment names no file", i+1)
		}
		code, err := extract(filepath.Join(root, filepath.FromSlash(words[0])), words[1:])
		if err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
		out = append(out, "```go", code, "```")
		i = end
	}
	return strings.Join(out, "\n"), nil
}

// extract returns the declarations of a file that have the names, in the order of the
// names, or the whole file. A method is named as its receiver's type and itself:
// "Server.Close".
func extract(file string, names []string) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return strings.TrimSpace(string(source)), nil
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	found := make(map[string]string, len(parsed.Decls))
	for _, declaration := range parsed.Decls {
		name, comment := declared(declaration)
		begin := declaration.Pos()
		if comment != nil {
			begin = comment.Pos()
		}
		found[name] = string(source[files.Position(begin).Offset:files.Position(declaration.End()).Offset])
	}
	parts := make([]string, len(names))
	for i, name := range names {
		if parts[i] = found[name]; parts[i] == "" {
			return "", fmt.Errorf("%s declares no %s", file, name)
		}
	}
	return strings.Join(parts, "\n\n"), nil
}

// declared returns the name and the comment of a declaration.
func declared(decl ast.Decl) (string, *ast.CommentGroup) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return declaration.Function(d), d.Doc
	case *ast.GenDecl:
		if spec, is := d.Specs[0].(*ast.TypeSpec); is {
			return spec.Name.Name, d.Doc
		}
	}
	return "", nil
}

// Consoles returns the blocks of commands of a page: lines after "$ " are commands,
// a "> " continues one, and all others are output.
func Consoles(page string) []Console {
	var consoles []Console
	var block *Console
	for i, line := range strings.Split(page, "\n") {
		switch {
		case line == "```console":
			consoles = append(consoles, Console{Line: i + 1})
			block = &consoles[len(consoles)-1]
		case block == nil:
		case line == "```":
			block = nil
		case strings.HasPrefix(line, "$ "), strings.HasPrefix(line, "> "):
			block.Commands += line[2:] + "\n"
		default:
			block.Output += line + "\n"
		}
	}
	return consoles
}

// Matches reports whether the output is what a page shows. "…" stands for any text
// within a line.
func Matches(shown, output string) bool {
	want, got := strings.Split(strings.TrimSpace(shown), "\n"), strings.Split(strings.TrimSpace(output), "\n")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !matchesLine(strings.Split(want[i], "…"), got[i]) {
			return false
		}
	}
	return true
}

func matchesLine(parts []string, line string) bool {
	rest, fits := strings.CutPrefix(line, parts[0])
	if len(parts) == 1 || !fits {
		return fits && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		if _, rest, fits = strings.Cut(rest, part); !fits {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}
