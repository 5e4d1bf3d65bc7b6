package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A trial is one test, run alone without a mutant.
type trial struct {
	name   string
	Passed bool
	Took   time.Duration
	Blocks []string // of code that it has reached, as go test -coverprofile names them
}

// isExample is 1 for an example, and else 0: examples come last, because they have no guard.
func (t *trial) isExample() int {
	if strings.HasPrefix(t.name, "Example") {
		return 1
	}
	return 0
}

// A reach knows which tests reach a place in the code.
type reach struct {
	trials  []trial                  // of the tests that pass, the quickest first
	blocks  map[string][]block       // of code, by the name of their file
	testsOf map[string]map[int]bool  // by block: the trials that reach it
	took    map[string]time.Duration // by test
}

// A block is code that runs from its begin to its end.
type block struct {
	text                           string
	line, column, toLine, toColumn int
}

// measure runs every test of a package alone and notes what it reaches. What it learns it keeps
// in a folder, until the package, what it imports, or the file of the test changes.
func measure(ctx context.Context, out io.Writer, p *pkg, kept string, flags []string) (*reach, error) {
	binary := &program{dir: p.dir, flags: flags}
	cache, err := openCache(ctx, p, kept, flags)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "mutants-reach")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	binary.binary = filepath.Join(folder, "cover.test")
	command := exec.CommandContext(ctx, "go", "test", "-c", "-cover", "-o", binary.binary, "-vet=off", p.path)
	if text, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the tests: %w\n%s", err, text)
	}
	tests, err := binary.tests(ctx)
	if err != nil {
		return nil, err
	}
	all, failures := make([]trial, len(tests)+1), make([]error, len(tests)+1)
	tests = append(tests, "") // reaches nothing, and tells which blocks there are
	var unknown []int
	for i, test := range tests {
		found, ok := cache.get(test)
		if all[i] = found; !ok {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		fmt.Fprintf(out, "%s: what does each test reach? %d of %d are run\n", p.dir, len(unknown), len(tests))
	}
	inParallel(runtime.GOMAXPROCS(0), len(unknown), func(n int) {
		i := unknown[n]
		if all[i], failures[i] = binary.try(ctx, tests[i], filepath.Join(folder, fmt.Sprint(i))); failures[i] == nil {
			failures[i] = cache.put(all[i])
		}
	})
	if err := errors.Join(append(failures, cache.forgetAllBut(tests))...); err != nil {
		return nil, err
	}
	return newReach(out, p, all)
}

// passed is the line with the time that a test took, without that of starting the binary.
var passed = regexp.MustCompile(`(?m)^--- PASS: \S+ \(([0-9.]+s)\)`)

// try runs one test alone. Processes that it starts, and that end by themselves, count as well.
func (p *program) try(ctx context.Context, test, folder string) (trial, error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return trial{}, err
	}
	profile := filepath.Join(folder, "profile")
	limit := func(string) time.Duration { return firstPatience }
	found, output, err := p.run(ctx, []string{test}, limit, func() {}, []string{"GOCOVERDIR=" + folder}, "-test.coverprofile="+profile)
	if err != nil {
		return trial{}, err
	}
	t := trial{name: test, Passed: found.verdict == lived}
	if !t.Passed {
		return t, nil
	}
	if took := passed.FindStringSubmatch(output); took != nil {
		if t.Took, err = time.ParseDuration(took[1]); err != nil {
			return t, err
		}
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return t, err
	}
	if children, _ := filepath.Glob(filepath.Join(folder, "covcounters.*")); len(children) > 0 {
		of := filepath.Join(folder, "children")
		if output, err := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i", folder, "-o", of).CombinedOutput(); err != nil {
			return t, fmt.Errorf("what the children of %s have reached: %w\n%s", test, err, output)
		}
		more, err := os.ReadFile(of)
		if err != nil {
			return t, err
		}
		text = append(text, more...)
	}
	reached := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		// package/file.go:1.2,3.4 statements count
		if fields := strings.Fields(line); len(fields) == 3 && (fields[2] != "0" || test == "") {
			reached[fields[0][strings.LastIndexByte(fields[0], '/')+1:]] = true
		}
	}
	for text := range reached {
		t.Blocks = append(t.Blocks, text)
	}
	slices.Sort(t.Blocks)
	return t, nil
}

func newReach(out io.Writer, p *pkg, all []trial) (*reach, error) {
	r := &reach{blocks: map[string][]block{}, testsOf: map[string]map[int]bool{}, took: map[string]time.Duration{}}
	for _, t := range all {
		if t.name == "" {
			if err := r.read(t.Blocks); err != nil {
				return nil, err
			}
		} else if t.Passed {
			r.trials = append(r.trials, t)
			r.took[t.name] = t.Took
		} else {
			fmt.Fprintf(out, "%s: alone, without a mutant, %s does not pass: it judges nothing\n", p.dir, t.name)
		}
	}
	if len(r.trials) == 0 && len(all) > 1 {
		return nil, errors.New("without a mutant the tests do not pass")
	}
	slices.SortFunc(r.trials, func(a, b trial) int {
		return cmp.Or(cmp.Compare(a.isExample(), b.isExample()), cmp.Compare(a.Took, b.Took), strings.Compare(a.name, b.name))
	})
	for i, t := range r.trials {
		for _, text := range t.Blocks {
			if r.testsOf[text] == nil {
				r.testsOf[text] = map[int]bool{}
			}
			r.testsOf[text][i] = true
		}
	}
	return r, nil
}

func (r *reach) read(blocks []string) error {
	for _, text := range blocks {
		b := block{text: text}
		name, rest, _ := strings.Cut(text, ":")
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d", &b.line, &b.column, &b.toLine, &b.toColumn); err != nil {
			return fmt.Errorf("a profile has the block %q: %w", text, err)
		}
		r.blocks[name] = append(r.blocks[name], b)
	}
	return nil
}

// tests lists the tests that reach a mutant, the quickest first.
func (r *reach) tests(m *mutant) (tests []string) {
	all := r.blocks[filepath.Base(m.file.name)]
	at := m.file.place(m.from)
	in := slices.IndexFunc(all, func(b block) bool {
		return !at.before(b.line, b.column) && at.before(b.toLine, b.toColumn)
	})
	if in < 0 { // as the condition of a case: whoever reaches the function counts
		in = first(all, m.file, m.function.Body)
	}
	if in < 0 {
		return nil
	}
	reaching := r.testsOf[all[in].text]
	for i, t := range r.trials {
		if reaching[i] {
			tests = append(tests, t.name)
		}
	}
	return tests
}

// first is the block that begins a body, or -1.
func first(all []block, f *file, body *ast.BlockStmt) int {
	begin, end := f.place(body.Lbrace), f.place(body.Rbrace)
	found := -1
	for i, b := range all {
		inside := !place{b.line, b.column}.before(begin.line, begin.column) && !end.before(b.line, b.column)
		if inside && (found < 0 || place{b.line, b.column}.before(all[found].line, all[found].column)) {
			found = i
		}
	}
	return found
}

type place struct{ line, column int }

func (f *file) place(at token.Pos) place {
	position := f.start.Position(at)
	return place{position.Line, position.Column}
}

func (p place) before(line, column int) bool {
	return p.line < line || p.line == line && p.column < column
}

// A cache keeps trials between runs, each in a file that is named by what the trial depends on.
type cache struct {
	folder string
	keys   map[string]string // by test
	rest   string            // the key of a test that no file declares
}

var declares = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)

func openCache(ctx context.Context, p *pkg, kept string, flags []string) (*cache, error) {
	builds, err := exec.CommandContext(ctx, "go", "list", "-deps", "-export", "-f", "{{.BuildID}}", p.path).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", p.path, err)
	}
	dir, err := filepath.Abs(p.dir)
	if err != nil {
		return nil, err
	}
	c := &cache{keys: map[string]string{}}
	c.folder = filepath.Join(kept, hash(dir))
	shared, files := []string{string(builds), strings.Join(flags, " ")}, map[string][]string{}
	for _, name := range p.testFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if tests := declares.FindAllSubmatch(text, -1); len(tests) > 0 {
			for _, test := range tests {
				files[string(text)] = append(files[string(text)], string(test[1]))
			}
		} else { // whatever a test does may depend on it
			shared = append(shared, string(text))
		}
	}
	c.rest = hash(shared...)
	for text, tests := range files {
		for _, test := range tests {
			c.keys[test] = hash(c.rest, text, test)
		}
	}
	return c, os.MkdirAll(c.folder, 0o700)
}

func hash(texts ...string) string {
	sum := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(sum, "%d %s", len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:16])
}

func (c *cache) file(test string) string {
	return filepath.Join(c.folder, cmp.Or(c.keys[test], c.rest+test))
}

func (c *cache) get(test string) (t trial, ok bool) {
	text, err := os.ReadFile(c.file(test))
	if err != nil || json.Unmarshal(text, &t) != nil {
		return trial{}, false
	}
	t.name = test
	return t, true
}

// forgetAllBut removes what the cache does not hold for these tests as they are now.
func (c *cache) forgetAllBut(tests []string) error {
	keep := map[string]bool{}
	for _, test := range tests {
		keep[c.file(test)] = true
	}
	kept, err := filepath.Glob(filepath.Join(c.folder, "*"))
	for _, name := range kept {
		if !keep[name] {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return err
}

// put keeps the trial of a test that passed. One that failed may pass when the machine is idle.
func (c *cache) put(t trial) error {
	if !t.Passed {
		return nil
	}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file(t.name), text, 0o600)
}
