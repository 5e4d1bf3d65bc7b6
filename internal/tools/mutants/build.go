package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// selection is the variable of the environment that selects a mutant.
const selection = "BOWLINE_MUTANT"

// otherError is a variable that is compiled into a package.
const otherError = "errorOfOtherKind"

// generation is the variable of the environment that counts how many processes of the binary
// have started one another: a mutant may make that endless.
const generation = "BOWLINE_MUTANT_GENERATION"

// selector is compiled into a package to read both.
const selector = `package %s

import (
	"errors"
	"os"
	"strconv"
)

var (
	selectedMutant   = selectMutant()
	errorOfOtherKind = errors.New("an error of another kind")
)

func selectMutant() int {
	generation, _ := strconv.Atoi(os.Getenv(%[3]q))
	if generation > 8 {
		os.Exit(3)
	}
	_ = os.Setenv(%[3]q, strconv.Itoa(generation+1))
	selected, _ := strconv.Atoi(os.Getenv(%[2]q))
	return selected
}
`

// build compiles the tests of a package with every mutant, and says which it
// had to leave out, because they do not compile.
func build(ctx context.Context, p *pkg, all []mutant, folder string, flags ...string) (binary string, unfit map[int]bool, err error) {
	unfit = map[int]bool{}
	for {
		binary, output, err := compile(ctx, p, all, unfit, folder, flags)
		if err == nil {
			return binary, unfit, nil
		}
		if more := refused(output, unfit); !more {
			return "", nil, fmt.Errorf("building the tests: %w\n%s", err, output)
		}
	}
}

var inMutant = regexp.MustCompile(`(?m)^[^\n]*\bmutant-([0-9]+):[0-9]+`)

// refused notes whose copies the compiler complains of, and reports whether
// there is one more.
func refused(output string, unfit map[int]bool) bool {
	known := len(unfit)
	for _, complaint := range inMutant.FindAllStringSubmatch(output, -1) {
		number, err := strconv.Atoi(complaint[1])
		if err == nil {
			unfit[number] = true
		}
	}
	return len(unfit) > known
}

func compile(ctx context.Context, p *pkg, all []mutant, unfit map[int]bool, folder string, flags []string) (binary, output string, err error) {
	overlay, err := writeOverlay(p, all, unfit, folder)
	if err != nil {
		return "", "", err
	}
	binary = filepath.Join(folder, "mutants.test")
	args := append([]string{"test", "-c", "-o", binary, "-vet=off", "-gcflags=-e", "-overlay", overlay}, flags...)
	command := exec.CommandContext(ctx, "go", append(args, p.path)...)
	text, err := command.CombinedOutput()
	return binary, string(text), err
}

// writeOverlay writes the package with all of its mutants, and the file that
// puts it in place of the real one.
func writeOverlay(p *pkg, all []mutant, unfit map[int]bool, folder string) (string, error) {
	replace := map[string]string{}
	put := func(name, text string) error {
		original, err := filepath.Abs(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		replace[original] = filepath.Join(folder, filepath.Base(name))
		return os.WriteFile(replace[original], []byte(text), 0o600)
	}
	err := put(p.dir+"/selected_mutant.go", fmt.Sprintf(selector, p.name, selection, generation))
	for _, f := range p.files {
		err = errors.Join(err, put(f.name, f.withMutants(all, unfit)))
	}
	text, marshalErr := json.Marshal(map[string]any{"Replace": replace})
	name := filepath.Join(folder, "overlay.json")
	return name, errors.Join(err, marshalErr, os.WriteFile(name, text, 0o600))
}

// withMutants is the text of a file in which every function begins with a
// choice among its mutants.
func (f *file) withMutants(all []mutant, unfit map[int]bool) string {
	var out strings.Builder
	written := f.start.Pos(0)
	for _, function := range f.functions {
		inside := function.Body.Lbrace + 1
		out.WriteString(f.between(written, inside))
		written = inside
		var choice strings.Builder
		for i := range all {
			if m := &all[i]; m.function == function && !unfit[m.number] {
				choice.WriteString(m.branch())
			}
		}
		if choice.Len() > 0 {
			fmt.Fprintf(&out, "\nswitch selectedMutant {%s\n}\n//line %s:%d\n", choice.String(), f.name, f.start.Line(inside))
		}
	}
	out.WriteString(f.between(written, f.start.Pos(f.start.Size())))
	return out.String()
}

// branch is a copy of the body with the mutation, in which the compiler's
// complaints name the mutant. A copy that does not return is no mutant.
func (m *mutant) branch() string {
	body := m.function.Body
	end := "return"
	if m.function.Type.Results != nil {
		end = `panic("the end of a mutant")`
	}
	return fmt.Sprintf("\ncase %d:\n//line mutant-%d:1\n%s%s%s\n%s", m.number, m.number,
		m.copied(body.Lbrace+1, m.from), m.text, m.copied(m.to, body.Rbrace), end)
}

// copied is the text from one position to another, with labels of the mutant's own: a function
// can have each only once.
func (m *mutant) copied(from, to token.Pos) string {
	var out strings.Builder
	ast.Inspect(m.function.Body, func(node ast.Node) bool {
		var label *ast.Ident
		switch n := node.(type) {
		case *ast.LabeledStmt:
			label = n.Label
		case *ast.BranchStmt:
			label = n.Label
		}
		if label != nil && from <= label.Pos() && label.End() <= to {
			fmt.Fprintf(&out, "%s_%d", m.file.between(from, label.End()), m.number)
			from = label.End()
		}
		return true
	})
	return out.String() + m.file.between(from, to)
}
