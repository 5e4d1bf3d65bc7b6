package architecture

// A fixture is a small tree and its violations. A fixture that breaks a rule also has a
// similar line that does not, so that a rule that always fires fails, too.
type fixture struct {
	name  string
	files map[string]string
	want  []string
}

var fixtures = []fixture{
	{
		name: "a sound tree",
		files: map[string]string{
			"telemetry/t.go":            `package telemetry; import _ "time"`,
			"telemetry/zaplog/z.go":     `package zaplog; import (_ "example.test/m/telemetry"; _ "go.uber.org/zap")`,
			"protocol/jsonrpc/j.go":     `package jsonrpc`,
			"protocol/p.go":             `package protocol; import _ "example.test/m/protocol/jsonrpc"`,
			"transport/t.go":            `package transport; import _ "example.test/m/protocol/jsonrpc"`,
			"transport/sse/s.go":        `package sse; import (_ "example.test/m/transport"; _ "example.test/m/protocol")`,
			"transport/inmem/i.go":      `package inmem; import _ "example.test/m/transport"`,
			"transport/inmem/i_test.go": `package inmem; import _ "example.test/m/proptest"`,
			"conn/c.go":                 `package conn; import _ "example.test/m/transport"`,
			"supervisor/s.go":           `package supervisor; import _ "example.test/m/conn"`,
			"proptest/p.go":             `package proptest; import _ "example.test/m/supervisor"`,
			"features/client/c.go":      `package client; import (_ "example.test/m/supervisor"; _ "example.test/m/protocol")`,
			"cmd/bowline/main.go":       `package main; import _ "example.test/m/features/client"`,
			"internal/tool/tool.go":     `package tool; import _ "example.test/m/protocol"`,
		},
	},
	{
		name: "place: unknown folders; the root is known",
		files: map[string]string{
			"m.go":        `package m`,
			"extras/e.go": `package extras`,
			"conn/c.go":   `package conn`,
			"late/l.go":   "//go:build windows\n\npackage late",
		},
		want: []string{"place extras", "place late"},
	},
	{
		name: "import: upwards, also behind a build tag, not in tests",
		files: map[string]string{
			"supervisor/s.go":   `package supervisor`,
			"conn/c.go":         "//go:build plan9\n\npackage conn\n\nimport _ \"example.test/m/supervisor\"",
			"conn/c_test.go":    `package conn_test; import _ "example.test/m/supervisor"`,
			"transport/t.go":    `package transport`,
			"transport/a/a.go":  `package a; import _ "example.test/m/transport/b"`,
			"transport/b/b.go":  `package b; import _ "example.test/m/transport"`,
			"features/x/x.go":   `package x; import _ "example.test/m/proptest"`,
			"proptest/suite.go": `package proptest`,
		},
		want: []string{"import conn/c.go:5", "import features/x/x.go:1", "import transport/a/a.go:1"},
	},
	{
		name: "import: from what serves any JSON-RPC peer to MCP, and to a transport that knows it",
		files: map[string]string{
			"protocol/p.go":             `package protocol; import _ "example.test/m/protocol/jsonrpc"`,
			"protocol/jsonrpc/j.go":     `package jsonrpc`,
			"transport/streamable/s.go": `package streamable; import _ "example.test/m/protocol"`,
			"transport/stdio/s.go":      `package stdio; import _ "example.test/m/protocol"`,
			"conn/c.go":                 `package conn; import _ "example.test/m/transport/streamable"`,
			"supervisor/s.go":           `package supervisor; import _ "example.test/m/protocol/jsonrpc"`,
		},
		want: []string{"import conn/c.go:1", "import transport/stdio/s.go:1"},
	},
	{
		name: "pure: the clock, by any name",
		files: map[string]string{"conn/core.go": `//bowline:pure

package conn

import (
	clock "time"
	"time"
)

type local struct{ Now func() }

func step(now time.Time, time local) {
	time.Now()
	_ = now.Add(clock.Second)
	_ = clock.Now()
	_ = clock.Since
	clock.AfterFunc(0, nil)
	clock.NewTimer(0)
	clock.Sleep(1)
}
`},
		want: []string{
			"pure conn/core.go:15", "pure conn/core.go:16", "pure conn/core.go:17",
			"pure conn/core.go:18", "pure conn/core.go:19",
		},
	},
	{
		name: "pure: goroutines, channels and locks",
		files: map[string]string{
			"conn/queue.go": "package conn\n\ntype queue chan int\n",
			"conn/pending.go": `//bowline:pure
package conn

func run(q queue, stop func()) {
	go stop()
	q <- 1
	<-q
	for range q {
	}
	for range 3 {
	}
	select {}
	close(q)
	_ = make(chan int)
}
`},
		want: []string{
			"pure conn/pending.go:12", "pure conn/pending.go:13", "pure conn/pending.go:14",
			"pure conn/pending.go:5", "pure conn/pending.go:6", "pure conn/pending.go:7", "pure conn/pending.go:8", "goroutines conn",
		},
	},
	{
		name: "pure: imports and contexts",
		files: map[string]string{"conn/table.go": `// Doc.
//
//bowline:pure
package conn

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

var background = context.Background

func f(ctx context.Context) {}
`},
		want: []string{
			"pure conn/table.go:10", "pure conn/table.go:11", "pure conn/table.go:12",
			"pure conn/table.go:13", "pure conn/table.go:17", "pure conn/table.go:19", "pure conn/table.go:9",
		},
	},
	{
		name: "pure: what it calls is declared pure too",
		files: map[string]string{
			"conn/core.go": `//bowline:pure
package conn

func (c *core) step(l listener) {
	c.settle()
	c.perform()
	sum()
	draw()
	l.Changed()
}
`,
			"conn/pending.go": "//bowline:pure\npackage conn\ntype core struct{}\nfunc (c *core) settle() {}\nfunc sum() {}",
			"conn/shell.go":   "package conn\nfunc (c *core) perform() {}\nfunc draw() {}\ntype listener interface{ Changed() }",
		},
		want: []string{"pure conn/core.go:6", "pure conn/core.go:8"},
	},
	{
		name:  "pure: the core is not marked, or marked too late",
		files: map[string]string{"conn/core.go": "package conn\n\n//bowline:pure\n"},
		want:  []string{"pure conn/core.go"},
	},
	{
		name: "state: written to, from this file and others",
		files: map[string]string{
			"conn/vars.go": `package conn

import "errors"

var (
	ErrClosed = errors.New("closed")
	names     = map[int]string{1: "one"}
	limit     = 3
	current   *core
	last      int
	table     = []int{1, 2}
)

type core struct{ n int }
`,
			"conn/use.go": `package conn

import "example.test/m/transport"

func use(names []int) {
	names[0] = 1
	limit := limit
	limit++
	table[0] = 2
	current.n++
	for last = range 3 {
	}
	transport.Default = nil
}

func more() {
	delete(names, 1)
	limit = 4
}
`,
			"transport/t.go": "package transport\nvar Default any",
		},
		want: []string{
			"state conn/use.go:10", "state conn/use.go:11", "state conn/use.go:17",
			"state conn/use.go:18", "state conn/use.go:9",
		},
	},
	{
		name: "state: what synchronizes",
		files: map[string]string{
			"conn/vars.go": `package conn

import (
	"sync"
	"sync/atomic"

	"example.test/m/transport"
)

type row[P any] struct {
	name     string
	outgoing sync.Pool
	next     *row[P]
}

func newRow[P any](name string, _ P) *row[P] { return &row[P]{name: name} }

type plain struct{ inner *plain }

var (
	first  = newRow("first", transport.Loss{})
	all    = map[string][]*row[int]{}
	newest atomic.Pointer[plain]
	counts [2]atomic.Int64
	pool   = sync.Pool{New: func() any { return new(plain) }}
	once   = sync.OnceValue(func() *plain { return new(plain) })
	start  sync.Once
	empty  = plain{inner: new(plain)}
)
`,
		},
		want: []string{"state conn/vars.go:21", "state conn/vars.go:22", "state conn/vars.go:23", "state conn/vars.go:24"},
	},
	{
		name: "leaks: tests without goleak",
		files: map[string]string{
			"conn/a_test.go":       `package conn; import "testing"; func TestA(t *testing.T) {}`,
			"supervisor/a_test.go": `package supervisor; import "testing"; func TestA(t *testing.T) {}`,
			"supervisor/main_test.go": `package supervisor; import ("testing"; "go.uber.org/goleak")
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }`,
			"transport/doc_test.go": `package transport_test; func ExampleLink() {}`,
		},
		want: []string{"leaks conn"},
	},
	{
		name: "goroutines: nobody says who starts them",
		files: map[string]string{
			"conn/c.go":           "package conn; func f() { go f() }",
			"conn/c_test.go":      "// The goroutines of a test.\npackage conn",
			"supervisor/s.go":     "package supervisor; func f() { go f() }",
			"supervisor/doc.go":   "// Package supervisor has one goroutine.\npackage supervisor",
			"cmd/bowline/c.go":    "package main; func f() { go f() }",
			"transport/t.go":      "package transport",
			"transport/t_test.go": "package transport; func f() { go f() }",
		},
		want: []string{"goroutines conn"},
	},
	{
		name: "revision: dates outside of the table",
		files: map[string]string{
			"protocol/p.go":             `package protocol; const Version20250326 = "2025-03-26"; func f(v string) bool { return v < "2025-03-26" }`,
			"features/server/s.go":      `package server; import "example.test/m/protocol"; func f(v string) bool { return v == protocol.Version20250326 }`,
			"features/server/t.go":      `package server; func g(v string) bool { return v < "2025-11-25" }`,
			"features/client/alias.go":  `package client; import p "example.test/m/protocol"; func f(v string) bool { return v == p.Version20250326 }`,
			"features/client/case.go":   `package client; func f(v string) { switch v { case "2025-11-25": } }`,
			"features/client/const.go":  "package client; const until = `2025-11-25`",
			"features/client/newest.go": `package client; import "example.test/m/protocol"; func f(v string) bool { return v == protocol.Latest || v == "2026-11-26" }`,
			"features/server/s_test.go": `package server; func h(v string) bool { return v < "2025-11-25" }`,
		},
		want: []string{
			"revision features/client/alias.go:1", "revision features/client/case.go:1", "revision features/client/const.go:1",
			"revision features/server/s.go:1", "revision features/server/t.go:1",
		},
	},
	{
		name: "library: OAuth for those who need none",
		files: map[string]string{
			"auth/a.go":                    `package auth; import _ "golang.org/x/oauth2"`,
			"auth/resource/r.go":           `package resource; import _ "github.com/go-jose/go-jose/v4/jwt"`,
			"transport/streamable/s.go":    `package streamable; import _ "golang.org/x/oauth2"`,
			"features/client/c.go":         `package client; import _ "github.com/go-jose/go-jose/v4"`,
			"transport/streamable/main.go": `package streamable`,
		},
		want: []string{"library features/client/c.go:1", "library transport/streamable/s.go:1"},
	},
}
