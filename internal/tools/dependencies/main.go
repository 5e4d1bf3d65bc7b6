// Command dependencies writes docs/dependencies.md: the modules of others that are compiled into what people install, and their licences.
//
//	go run ./internal/tools/dependencies -check     fail if the page is stale, or if a licence is not allowed
//	go run ./internal/tools/dependencies -update    write the page
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const page = "docs/dependencies.md"

func main() {
	update := flag.Bool("update", false, "write "+page)
	flag.Bool("check", true, "fail if "+page+" is stale, or if a licence is not allowed")
	flag.Parse()
	if err := run(".", *update); err != nil {
		fmt.Fprintln(os.Stderr, "dependencies:", err)
		os.Exit(1)
	}
}

// run compares the page below root with what is there, or writes it.
func run(root string, update bool) error {
	all, err := shipped(root)
	if err != nil {
		return err
	}
	if err := refused(all); err != nil {
		return err
	}
	file, fresh := filepath.Join(root, page), render(all)
	if update {
		return os.WriteFile(file, []byte(fresh), 0o600)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != fresh {
		return errors.Join(err, fmt.Errorf("%s is stale: go run ./internal/tools/dependencies -update", page))
	}
	return nil
}

// ours is the path of the repository's first module, and the beginning of that of all others.
const ours = "github.com/bowline-mcp/bowline"

// private are our folders that nobody installs.
var private = []string{"examples", "gateway/admin/browser", "internal/tools", "peers"}

// A dependency is a module of others.
type dependency struct {
	path, version string
	licences      []string        // empty: none is known
	in            map[string]bool // our modules that compile it in
}

// systems are those for which there are programs: some modules are compiled for one of them only.
var systems = []string{"linux", "darwin", "windows"}

// listing is what go list prints of a package: its path, its module, the folder of that, whether it is ours, and for our packages those that they need.
const listing = "{{.ImportPath}}\t{{with .Module}}{{.Path}}\t{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}\t{{.Dir}}\t{{.Main}}{{end}}" +
	"\t{{with .Module}}{{if .Main}}{{join $.Deps \",\"}}{{end}}{{end}}"

// shipped returns the modules of others that our packages need, sorted by path.
func shipped(root string) ([]*dependency, error) {
	found := make(map[string]*dependency)
	for _, system := range systems {
		list := exec.Command("go", "list", "-deps", "-f", listing, "work")
		list.Dir, list.Env = root, append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		var said strings.Builder
		list.Stderr = &said
		text, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list for %s: %w\n%s", system, err, &said)
		}
		if err := add(found, string(text)); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *dependency) int { return strings.Compare(a.path, b.path) }), nil
}

// add adds what one listing says.
func add(found map[string]*dependency, text string) error {
	type listed struct{ module, version, folder string }
	of := make(map[string]listed) // by the path of a package
	type need struct {
		by string
		of []string
	}
	var needs []need
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 6 { // of the standard library
			continue
		}
		if f[4] != "true" {
			of[f[0]] = listed{f[1], f[2], f[3]}
		} else if isShipped(f[0]) {
			needs = append(needs, need{f[1], strings.Split(f[5], ",")})
		}
	}
	for _, n := range needs {
		for _, imported := range n.of {
			m, others := of[imported]
			if !others {
				continue
			}
			if found[m.module] == nil {
				licences, err := licencesIn(m.folder)
				if err != nil {
					return err
				}
				found[m.module] = &dependency{m.module, m.version, licences, make(map[string]bool)}
			}
			found[m.module].in[n.by] = true
		}
	}
	return nil
}

func isShipped(imported string) bool {
	below := strings.TrimPrefix(strings.TrimPrefix(imported, ours), "/")
	return !slices.ContainsFunc(private, func(p string) bool { return below == p || strings.HasPrefix(below, p+"/") })
}

// refused returns an error that names each module whose licence is not in the list.
func refused(all []*dependency) (err error) {
	for _, d := range all {
		if len(d.licences) == 0 {
			err = errors.Join(err, fmt.Errorf("%s %s: no licence was found", d.path, d.version))
		}
		for _, l := range d.licences {
			if !isAllowed(d.path, l) {
				err = errors.Join(err, fmt.Errorf("%s %s: the licence %s is not allowed", d.path, d.version, l))
			}
		}
	}
	return err
}

// render returns the page.
func render(all []*dependency) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Dependencies

These %d modules of others are compiled into what people install of Bowline, on Linux, macOS or Windows, tests left out, with the
versions of this repository: a program of yours has those that its own `+"`go.mod`"+` chooses. The licences are those of the files `+"`LICENSE`"+` and the like in the
folder of each module, read by their words. Allowed are %s. The standard library of Go is under BSD-3-Clause.

| Module | Version | Licence | Compiled into |
| --- | --- | --- | --- |
`, len(all), strings.Join(allowed, ", "))
	for _, d := range all {
		var in []string
		for _, by := range slices.Sorted(maps.Keys(d.in)) {
			if by = strings.TrimPrefix(strings.TrimPrefix(by, ours), "/"); by == "" {
				by = "the library"
			}
			in = append(in, by)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", d.path, d.version, strings.Join(d.licences, ", "), strings.Join(in, ", "))
	}
	b.WriteString("\nBeside the allowed licences:\n\n")
	for _, e := range exceptions {
		fmt.Fprintf(&b, "- %s of %s %s.\n", e.licence, e.module, e.why)
	}
	b.WriteString("\nThis page is generated: `go run ./internal/tools/dependencies -update` writes it, and a test fails when it is stale or a licence is not allowed.\n")
	return b.String()
}
