package main

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// module is the path of the repository's first module, and the beginning of that of all others.
const module = "github.com/bowline-mcp/bowline"

// private are folders whose packages nobody is meant to import.
var private = []string{"examples", "gateway/admin/browser", "peers"}

// load reads the packages of go.work that people import, from what the compiler has exported.
func load(root string) ([]*types.Package, error) {
	listed, err := goList(root, "-f", "{{.Name}} {{.ImportPath}}", "work")
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(listed) {
		name, imported, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "main" && public(imported) {
			paths = append(paths, imported)
		}
	}
	compiled, err := goList(root, append([]string{"-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, paths...)...)
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	for line := range strings.Lines(compiled) {
		imported, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[imported] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(imported string) (io.ReadCloser, error) { return os.Open(files[imported]) })
	packages := make([]*types.Package, len(paths))
	for i, imported := range paths {
		if packages[i], err = imports.Import(imported); err != nil {
			return nil, err
		}
	}
	return packages, nil
}

// public reports whether people may import a package.
func public(imported string) bool {
	below := folder(imported)
	return !internal(imported) && !slices.ContainsFunc(private, func(p string) bool { return below == p || strings.HasPrefix(below, p+"/") })
}

// internal reports whether only packages near it can import a package.
func internal(imported string) bool { return slices.Contains(strings.Split(imported, "/"), "internal") }

// folder is the path of a package below the root of the repository, or its whole path if it is none of ours.
func folder(imported string) string {
	if imported == module {
		return path.Base(module)
	}
	return strings.TrimPrefix(imported, module+"/")
}

// goList lists packages as they are on Linux, so that every system writes the same page.
func goList(root string, args ...string) (string, error) {
	command := exec.Command("go", append([]string{"list"}, args...)...)
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS=linux")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	return string(output), nil
}
