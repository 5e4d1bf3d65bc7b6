package main

import (
	"fmt"
	"strings"
	"testing"
)

const beforePairs = `package small

import (
	"net/http"
	"sync"
)

type state struct {
	mu   sync.Mutex
	n, m int
	on   bool
	done chan struct{}
	next *state
}

func call(...any) int { return 0 }

func (s *state) act() {}
`

// pair is a function that ends with two statements.
const pair = `
func f%d(s *state, n int, text string, list []int, h http.Header, d any) (result int) {
	local, other, flag := n, n, false
	shared, taken, v := 0, 0, state{}
	p := &taken
	defer func() { call(p, shared) }()
	%s
	%s
}
`

// TestIndependentStatements checks of which pairs of statements it is proved that nobody could tell in which order they run.
func TestIndependentStatements(t *testing.T) {
	cases := []struct {
		name, first, second string
		independent         bool
	}{
		{"a new variable and a call", `s.act()`, `fresh := false`, true},
		{"a new variable and a lock", `var fresh sync.WaitGroup`, `s.mu.Lock()`, true},
		{"a new variable of a variable", `s.act()`, `fresh := local`, true},
		{"a new variable of a call", `s.act()`, `fresh := call()`, false},
		{"a new variable that was another", `call(text)`, `text := 1`, false},
		{"a new channel and a call", `s.act()`, `fresh := make(chan int, 1)`, true},
		{"a new list that may be too long", `s.act()`, `fresh := make([]int, n)`, false},
		{"a variable and a call", `s.act()`, `local = n`, true},
		{"a variable and a call with it", `call(local)`, `local = n`, false},
		{"a variable that the other sets", `local, other = other, local`, `other = call()`, false},
		{"a variable of what the other sets", `other = 2 + call()`, `local = other`, false},
		{"a counter and a call", `local++`, `s.act()`, true},
		{"a counter after a return", "if flag { return }", `local++`, true},
		{"a counter and a jump", "if flag { break }", `local++`, false},
		{"a variable that a function uses", `s.act()`, `shared = n`, false},
		{"a variable whose address is known", `*p = call()`, `taken = n`, false},
		{"a variable of which a part is known", `v.mu.Lock()`, `v = state{}`, false},
		{"a result", `s.act()`, `result = n`, false},
		{"a field", `s.act()`, `s.n = n`, false},
		{"a field under a lock", `s.on = true`, `close(s.done)`, false},
		{"a field that is read", `s.act()`, `local = s.n`, false},
		{"two fields, one read by the other", `s.n = s.m`, `s.m = 1`, false},
		{"a division", `s.act()`, `local = 7 / n`, false},
		{"a shift", `s.act()`, `local = 7 << n`, false},
		{"a comparison that may fail", `s.act()`, `flag = d == d`, false},
		{"a comparison of numbers", `s.act()`, `flag = n < 7`, true},
		{"an index", `s.act()`, `local = list[0]`, false},
		{"a pointer", `s.act()`, `local = s.next.n`, false},
		{"what a channel holds", `s.act()`, `local = <-make(chan int)`, false},
		{"the length of a list", `s.act()`, `local = len(list)`, true},
		{"the length of a map", `call(s)`, `local = len(h)`, false},
		{"a conversion", `s.act()`, `fresh := int8(n)`, true},
		{"a conversion that may fail", `s.act()`, `fresh := [4]int(list)`, false},
		{"a new pointer", `s.act()`, `fresh := &state{n: n}`, true},
		{"a map of what may not be comparable", `s.act()`, `fresh := map[any]int{d: 1}`, false},
		{"two headers", `h.Set("Accept", "a")`, `h.Set("Content-Type", "b")`, true},
		{"one header in two ways", `h.Set("Accept", "a")`, `h.Set("accept", "b")`, false},
		{"headers of two, which may be the one", `h.Set("Accept", "a")`, `http.Header(h).Set("Host", "b")`, false},
		{"a header of a call", `h.Set("Accept", "a")`, `h.Set("Host", http.StatusText(call()))`, false},
		{"two calls", `s.act()`, `call()`, false},
	}
	var text strings.Builder
	text.WriteString(beforePairs)
	for i, c := range cases {
		fmt.Fprintf(&text, pair, i, c.first, c.second)
	}
	writeModule(t, map[string]string{"go.mod": small["go.mod"], "a.go": text.String()})
	p, err := load(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	functions := p.files[0].functions
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := mutator{pkg: p, file: p.files[0], function: functions[len(functions)-len(cases)+i]}
			list := m.function.Body.List
			first, second := list[len(list)-2], list[len(list)-1]
			if m.independent(first, second) != c.independent || m.independent(second, first) != c.independent {
				t.Errorf("of %q and %q it is proved: %v", c.first, c.second, !c.independent)
			}
		})
	}
}
