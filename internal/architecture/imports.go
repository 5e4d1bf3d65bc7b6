package architecture

import (
	"maps"
	"slices"
	"strings"
)

// An edge says that a package imports another, and where.
type edge struct{ from, to, at string }

// graph maps each package of the tree to the packages of the tree it imports
// outside its tests, one edge each, in order of file and line.
func (t *Tree) graph() map[string][]edge {
	edges := map[string][]edge{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		edges[f.dir] = append(edges[f.dir], t.localImports(f, edges[f.dir])...)
	}
	return edges
}

func (t *Tree) localImports(f *file, known []edge) []edge {
	var found []edge
	for spec, target := range f.imports {
		to, local := t.local(target)
		same := func(e edge) bool { return e.to == to }
		if local && !slices.ContainsFunc(known, same) {
			found = append(found, edge{f.dir, to, t.at(spec)})
		}
	}
	return found
}

// local is the folder of a package of this tree; local is false for others.
func (t *Tree) local(target string) (dir string, local bool) {
	if target == t.module {
		return ".", true
	}
	return strings.CutPrefix(target, t.module+"/")
}

func checkPlaces(t *Tree, report reporter) {
	for _, dir := range slices.Sorted(maps.Keys(t.graph())) {
		beside := isSink(dir) || matches(suites, dir) || isTooling(dir)
		if floor(dir) < 0 && !beside {
			report(dir, "the package has no place in the house: add it to the table in internal/architecture/layers.go")
		}
	}
}

func checkArrows(t *Tree, report reporter) {
	for _, edges := range t.graph() {
		for _, e := range edges {
			if why := forbidden(e.from, e.to); why != "" {
				report(e.at, "%s imports %s: %s", e.from, e.to, why)
			}
		}
	}
}

func checkCycles(t *Tree, report reporter) {
	edges := t.graph()
	finished := map[string]bool{}
	var visit func(pkg string, trail []string)
	visit = func(pkg string, trail []string) {
		if at := slices.Index(trail, pkg); at >= 0 {
			report(pkg, "the packages import each other: %s", arrows(append(trail[at:], pkg)))
			return
		}
		if finished[pkg] {
			return
		}
		for _, e := range edges[pkg] {
			visit(e.to, append(slices.Clone(trail), pkg))
		}
		finished[pkg] = true
	}
	for _, pkg := range slices.Sorted(maps.Keys(edges)) {
		visit(pkg, nil)
	}
}

func checkAgnostic(t *Tree, report reporter) {
	edges := t.graph()
	for from := range edges {
		if !anyMatches(agnostic, from) || anyMatches(mcpAware, from) {
			continue
		}
		if trail := pathToMCP(edges, []string{from}); trail != nil {
			report(from, "%s", arrows(trail))
		}
	}
}

// pathToMCP is the way from the last package of trail to one that knows MCP.
func pathToMCP(edges map[string][]edge, trail []string) []string {
	for _, e := range edges[trail[len(trail)-1]] {
		if slices.Contains(trail, e.to) {
			continue // a cycle, which another rule reports
		}
		longer := append(slices.Clone(trail), e.to)
		if anyMatches(mcp, e.to) && !anyMatches(mcpNeutral, e.to) {
			return longer
		}
		if found := pathToMCP(edges, longer); found != nil {
			return found
		}
	}
	return nil
}

func checkTelemetry(t *Tree, report reporter) {
	for _, f := range t.files {
		if f.test || f.dir != "telemetry" {
			continue
		}
		for spec, target := range f.imports {
			domain, _, _ := strings.Cut(target, "/")
			if strings.Contains(domain, ".") {
				report(t.at(spec), "telemetry imports %s", target)
			}
		}
	}
}

func arrows(trail []string) string { return strings.Join(trail, " → ") }
