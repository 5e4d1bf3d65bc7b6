package main

import (
	"fmt"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// changesOf lists what is changed in a file that holds this text, without the
// folder.
func changesOf(t *testing.T, text string) []string {
	t.Helper()
	name := filepath.ToSlash(filepath.Join(t.TempDir(), "a.go"))
	if err := os.WriteFile(name, []byte("package a\n\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := readFile(token.NewFileSet(), name)
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, m := range (&pkg{files: []*file{f}}).mutants() {
		changes = append(changes, strings.TrimPrefix(m.name, path.Dir(name)+" "))
	}
	return changes
}

func TestWhatIsChanged(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"comparison": {
			`func less(a, b int) bool { return a < b }`,
			[]string{"less: a < b => a <= b", "less: a < b => a >= b"},
		},
		"condition": {
			"func both(a, b bool) bool { return a && // so\n!b }",
			[]string{"both: a && !b => a || !b", "both: a && !b => a", "both: a && !b => !b", "both: !b => b"},
		},
		"either": {
			`func either(a, b bool) bool { return a || b }`,
			[]string{"either: a || b => a && b", "either: a || b => a", "either: a || b => b"},
		},
		"constant": {`func no() (int, bool) { return 0, false }`, []string{"no: return 0, false => return 0, true"}},
		"constants": {
			`func set() { on = true; f(x, false); v := T{true: false, min: max}; return }`,
			[]string{
				"set: remove on = true", "set: remove f(x, false)", "set: remove return",
				"set: swap on = true and f(x, false)", "set: swap f(x, false) and v := T{true: false, min: max}",
				"set: on = true => on = false", "set: f(x, false) => f(x, true)", "set: true: false => true: true",
			},
		},
		"arithmetic": {`func sum(a, b int) int { return max(a+b, -a) }`, []string{"sum: max(a+b, -a) => min(a+b, -a)", "sum: a+b => a-b", "sum: -a => a"}},
		"statements": {
			`func (c *core[T]) step() { n := 0; n += 1; c.n++; c.emit(); if n := 1; n == 2 { return } }`,
			[]string{
				"core.step: remove n += 1", "core.step: remove c.n++", "core.step: remove c.emit()",
				"core.step: swap c.n++ and c.emit()",
				"core.step: n += 1 => n -= 1", "core.step: n += 1 => n = 1", "core.step: c.n++ => c.n--",
				"core.step: n == 2 => n != 2", "core.step: remove return",
			},
		},
		"loop": {
			`func (core) loop() { for { break }; switch { case true: continue } }`,
			[]string{"core.loop: remove break", "core.loop: break => continue", "core.loop: remove continue", "core.loop: continue => break"},
		},
		"the same change twice": {
			`func twice() { f(); f() }`,
			[]string{"twice: remove f()", "twice: remove f() (2)"},
		},
		"nothing to change": {`func f(); var v = 1 < 2; func g() int { v := 1; return v }`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, changesOf(t, c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the operators do that make moves which a careful person makes.
func TestWhatIsMovedAndLost(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"out of a lock": {
			`func f() { mu.Lock(); x = y; if x { y = g(x) }; mu.Unlock(); send() }`,
			[]string{
				"f: swap mu.Lock() and x = y", "f: swap if x and mu.Unlock()", "f: swap mu.Unlock() and send()",
			},
		},
		"a lock that is given back later": {`func f() { mu.Lock(); defer mu.Unlock(); return }`, nil},
		"before its neighbour": {
			`func f() { saved = true; call(); a = b; b = c; d = e; return }`,
			[]string{"f: swap saved = true and call()", "f: swap call() and a = b", "f: swap a = b and b = c"},
		},
		"order that does not matter or does not compile": {
			`func f() { x := g(); call(x); v, w := 1, 2; u := x.a; defer call(v); b.x++; c.y, _ = d, d; c.z, _ = g, g; return }`, []string{"f: swap call(x) and v, w := 1, 2"},
		},
		"deferred calls": {`func f() { defer a(); defer b() }`, []string{"f: swap defer a() and defer b()"}},
		"in a select":    {`func f() { select { case <-c: a(); b() } }`, []string{"f: swap a() and b()"}},
		"resets": {
			`func f() { x = 0; delete(m, k); clear(m); n-- ; c <- 1; defer g() }`,
			[]string{"f: swap x = 0 and delete(m, k)", "f: swap delete(m, k) and clear(m)", "f: swap clear(m) and n--", "f: swap n-- and c <- 1"},
		},
		"time": {
			"const wait = 3 * time.Minute\nconst first = iota\nfunc f() time.Duration { f.wait = g(time.Second, wait, T{wait: first}); return 2 << 10 }",
			[]string{
				"f: time.Second => 8 * time.Second", "f: time.Second => time.Second / 8", "f: wait => 8 * wait", "f: wait => wait / 8",
				"f: 2 << 10 => 8 * (2 << 10)", "f: 2 << 10 => (2 << 10) / 8",
			},
		},
		"no sizes": {
			"const no = 7\nfunc f() { a := [16]int{}; b := make(map[int]int, 64); c := make([]int, 0, 64); d := 1; e := a[12] >> 24; switch d { case no: } }",
			[]string{"f: make(map[int]int, 64) => map[int]int(nil)"},
		},
		"room of a channel": {`func f() { c := make(chan int, 64) }`, []string{"f: 64 => 8 * 64", "f: 64 => 64 / 8"}},
		"kinds of errors": {
			"import \"io\"\nvar errGone, gone = 1, 2\nfunc f() error { if err == errGone || errors.Is(err, io.ErrShortWrite) { return io.ErrShortWrite }; return g(errGone, x.ErrField, gone) }",
			[]string{"f: io.ErrShortWrite => another error", "f: errGone => another error"},
		},
		"wrapped errors": {
			"func f() error { return fmt.Errorf(`%w: %d`, err, n) }", []string{"f: fmt.Errorf(`%w: %d`, err, n) => fmt.Errorf(`%v: %d`, err, n)"},
		},
		"what an error says": {
			`func f() error { return &HTTPError{Status: 1, Err: err} }`, []string{"f: HTTPError: drop Status: 1", "f: HTTPError: drop Err: err"},
		},
		"nil maps": {
			`func f() { a := map[string]int{}; return T{m: make(map[int]bool)} }`,
			[]string{"f: map[string]int{} => map[string]int(nil)", "f: make(map[int]bool) => map[int]bool(nil)"},
		},
		"contexts": {
			`func f() { a := context.WithValue(b, k, v); c, d := context.WithTimeout(a, n); e, g := context.WithCancelCause(c); h := context.Background() }`,
			[]string{"f: context.WithValue(b, k, v) => b", "f: context.WithTimeout(a, n) => a", "f: context.WithCancelCause(c) => c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := func(change string) bool { return !moved.MatchString(change) }
			if got := slices.DeleteFunc(changesOf(t, c.text), other); !slices.Equal(got, c.want) {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
}

var moved = regexp.MustCompile(`: swap |: drop |/ 8|8 \*|another error|%v|\(nil\)|context\.`)

// Each change compiles, also that of a function with a label.
func TestChangesCompile(t *testing.T) {
	writeModule(t, map[string]string{"go.mod": small["go.mod"], "a.go": `package small

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const wait = 3 * time.Minute

var errGone = errors.New("gone")

type LossError struct{ Code, Status int }

func (e *LossError) Error() string { return "lost" }

func f(ctx context.Context, mu *sync.Mutex, m map[int]int, n int) error {
	defer print("deferred")
	d := 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	mu.Lock()
	counts := make(map[int]int)
outer:
	for {
		for i := range n {
			if i > 1<<10 {
				continue outer
			}
			break outer
		}
	}
	mu.Unlock()
	if m[n]++; len(counts) > 1 {
		return fmt.Errorf("f: %w", errGone)
	}
	<-time.After(wait)
	return errors.Join(ctx.Err(), &LossError{Code: 1, Status: 2})
}
`, "a_test.go": "package small\n"})
	p, err := load(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	all := p.mutants()
	_, unfit, err := build(t.Context(), p, all, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if unfit[m.number] && !strings.Contains(m.name, "outer") && !strings.Contains(m.name, "1<<10 => 1>>10") {
			t.Errorf("%s: does not compile: %s", m.at, m.name)
		}
	}
	if len(all) < 25 {
		t.Errorf("%d changes", len(all))
	}
}

// Of all mutants a part is judged, which does not depend on changes elsewhere, and of files that
// were touched so many as are asked for.
func TestWhatIsJudged(t *testing.T) {
	var text strings.Builder
	text.WriteString("package small\n")
	for i := range 60 {
		fmt.Fprintf(&text, "\nfunc difference%d(a, b int) int { return a - b }\n", i)
	}
	files := map[string]string{"go.mod": small["go.mod"], "a.go": text.String(), "b.go": small["pure.go"]}
	drawn := func(o options) (judged []string) {
		writeModule(t, files)
		p, err := load(t.Context(), ".")
		if err != nil {
			t.Fatal(err)
		}
		all := p.mutants()
		taken, left := sample(all, &o)
		if len(taken)+len(left) != len(all) {
			t.Errorf("%d mutants are judged and %d left out, of %d", len(taken), len(left), len(all))
		}
		for _, m := range taken {
			if m.file.name == "./a.go" {
				judged = append(judged, m.name)
			}
		}
		return judged
	}
	if all := drawn(options{part: 1}); len(all) != 60 {
		t.Errorf("%d mutants of the file, of 60", len(all))
	}
	third := drawn(options{part: 3})
	if len(third) < 8 || len(third) > 40 {
		t.Errorf("%d mutants of 60 are a third", len(third))
	}
	if touched := drawn(options{part: 3, touched: []string{"./a.go"}, most: 100}); len(touched) != 60 {
		t.Errorf("%d mutants of a touched file, of 60", len(touched))
	}
	if most := drawn(options{part: 1000000, touched: []string{"./a.go"}, most: 7}); len(most) != 7 {
		t.Errorf("%d mutants of a touched file, of at most 7", len(most))
	}
	if one := drawn(options{part: 1, only: regexp.MustCompile("difference7:")}); len(one) != 1 {
		t.Errorf("only one is asked for, and %q are judged", one)
	}
	files["a.go"] = strings.Replace(text.String(), "small\n", "small\n\nvar first = 1\n", 1)
	if moved := drawn(options{part: 3}); !slices.Equal(moved, third) {
		t.Errorf("after an edit elsewhere these are judged: %q, and before: %q", moved, third)
	}
}
