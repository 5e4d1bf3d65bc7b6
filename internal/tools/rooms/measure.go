package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
)

// A room is a package, or its core or shell.
type room struct {
	name             string
	files            int
	code, comments   int // lines
	p50, p90, most   int // lines of code of a function
	cycle, cycleCode int // the files of the largest cycle, and their lines of code; 1 and its lines if no files form one
	exported         int // types, functions, methods, constants and variables
}

// perLine returns how many lines of comments there are for each line of code.
func (r room) perLine() float64 {
	if r.code == 0 {
		return 0
	}
	return float64(r.comments) / float64(r.code)
}

// A listed is what go list prints of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	Module                  *struct {
		Main bool
		Dir  string
	}
}

// load measures the packages of a tree that match patterns.
func load(root string, patterns []string) ([]room, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	wanted, err := list(root, append([]string{"list", "-f", "{{.ImportPath}}"}, patterns...))
	if err != nil {
		return nil, err
	}
	names := strings.Fields(string(wanted))
	described, err := list(root, append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,Module"}, patterns...))
	if err != nil {
		return nil, err
	}
	exports, packages := make(map[string]string), []listed(nil)
	for decoder := json.NewDecoder(bytes.NewReader(described)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the output of go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if slices.Contains(names, p.ImportPath) {
			packages = append(packages, p)
		}
	}
	var rooms []room
	for _, p := range packages {
		name, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		of, err := measure(filepath.ToSlash(name), p, exports)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		rooms = append(rooms, of...)
	}
	sortRooms(rooms)
	return rooms, nil
}

func list(root string, args []string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, problems.Bytes())
	}
	return out, nil
}

// A source is a file of a package.
type source struct {
	code, comments int
	pure           bool
	functions      []int // their lines of code
	exported       int
	needs          map[int]bool // the files that it needs, by index
}

// measure measures the rooms of a package.
func measure(name string, p listed, exports map[string]string) ([]room, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	var sources []*source
	for _, base := range slices.Concat(p.GoFiles, p.CgoFiles) {
		text, err := os.ReadFile(filepath.Join(p.Dir, base))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, base, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if len(p.CgoFiles) > 0 && slices.Contains(p.CgoFiles, base) {
			return nil, fmt.Errorf("%s uses cgo, which is not measured", base)
		}
		files = append(files, f)
		sources = append(sources, read(fset, f, text))
	}
	if err := connect(fset, p.ImportPath, files, sources, exports); err != nil {
		return nil, err
	}
	var all, core, shell []int
	for i, s := range sources {
		switch {
		case ast.IsGenerated(files[i]):
			continue
		case s.pure:
			core = append(core, i)
		default:
			shell = append(shell, i)
		}
		all = append(all, i)
	}
	switch {
	case len(all) == 0:
		return nil, nil
	case len(core) == 0 || len(shell) == 0:
		return []room{roomOf(name, sources, all)}, nil
	default:
		return []room{roomOf(name+" (core)", sources, core), roomOf(name+" (shell)", sources, shell)}, nil
	}
}

// read measures a file alone.
func read(fset *token.FileSet, f *ast.File, text []byte) *source {
	s := &source{pure: bytes.HasPrefix(text, []byte("//bowline:pure\n")), needs: make(map[int]bool)}
	isCode := linesOf(text)
	commented := make(map[int]bool)
	for _, group := range f.Comments {
		for line := fset.Position(group.Pos()).Line; line <= fset.Position(group.End()).Line; line++ {
			commented[line] = true
		}
	}
	s.code = len(isCode)
	for line := range commented {
		if !isCode[line] {
			s.comments++
		}
	}
	for _, declared := range f.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			lines := 0
			for line := fset.Position(d.Pos()).Line; line <= fset.Position(d.End()).Line; line++ {
				if isCode[line] {
					lines++
				}
			}
			s.functions = append(s.functions, lines)
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(declaration.Receiver(d))) {
				s.exported++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					s.exported += exported(spec.Name)
				case *ast.ValueSpec:
					s.exported += exported(spec.Names...)
				}
			}
		}
	}
	return s
}

func exported(names ...*ast.Ident) (n int) {
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}

// linesOf returns the lines on which there is a token.
func linesOf(text []byte) map[int]bool {
	lines := make(map[int]bool)
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.SEMICOLON && literal == "\n" {
			continue // the scanner has put it there
		}
		first := file.Line(at)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			lines[line] = true
		}
	}
}

// connect finds which files need which.
func connect(fset *token.FileSet, path string, files []*ast.File, sources []*source, exports map[string]string) error {
	lookup := func(imported string) (io.ReadCloser, error) {
		if exports[imported] == "" {
			return nil, fmt.Errorf("there are no export data of %s", imported)
		}
		return os.Open(exports[imported])
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	if _, err := config.Check(path, fset, files, info); err != nil {
		return err
	}
	index := make(map[string]int)
	for i, f := range files {
		index[fset.Position(f.Pos()).Filename] = i
	}
	for name, used := range info.Uses {
		if used.Pkg() == nil || used.Pkg().Path() != path || !declared(used) {
			continue
		}
		from, to := index[fset.Position(name.Pos()).Filename], index[fset.Position(used.Pos()).Filename]
		if from != to {
			sources[from].needs[to] = true
		}
	}
	return nil
}

// declared reports whether an object is of the package's level, a method or a field.
func declared(o types.Object) bool {
	if o.Parent() == o.Pkg().Scope() {
		return true
	}
	switch o := o.(type) {
	case *types.Var:
		return o.IsField()
	case *types.Func:
		return o.Signature().Recv() != nil
	default:
		return false
	}
}

func roomOf(name string, sources []*source, members []int) room {
	r := room{name: name, files: len(members)}
	var functions []int
	for _, i := range members {
		s := sources[i]
		r.code, r.comments, r.exported = r.code+s.code, r.comments+s.comments, r.exported+s.exported
		functions = append(functions, s.functions...)
	}
	if slices.Sort(functions); len(functions) > 0 {
		r.p50, r.p90, r.most = functions[len(functions)/2], functions[len(functions)*9/10], functions[len(functions)-1]
	}
	for _, cycle := range cycles(sources, members) {
		code := 0
		for _, i := range cycle {
			code += sources[i].code
		}
		if len(cycle) > r.cycle || len(cycle) == r.cycle && code > r.cycleCode {
			r.cycle, r.cycleCode = len(cycle), code
		}
	}
	return r
}

// cycles returns the sets of files of which each needs all others, directly or not, by Tarjan's algorithm.
func cycles(sources []*source, members []int) (all [][]int) {
	index, low := make(map[int]int), make(map[int]int)
	var stack []int
	var visit func(int)
	visit = func(v int) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack = append(stack, v)
		for w := range sources[v].needs {
			if !slices.Contains(members, w) {
				continue
			}
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if slices.Contains(stack, w) {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] == index[v] {
			at := slices.Index(stack, v)
			all = append(all, slices.Clone(stack[at:]))
			stack = stack[:at]
		}
	}
	for _, v := range members {
		if index[v] == 0 {
			visit(v)
		}
	}
	return all
}
