package registry_test

import (
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// filled returns a Registry of 10,000 Conns, and their names.
func filled(b *testing.B) (*registry.Registry, []string) {
	r, names := registry.New(registry.Options{}), make([]string, 10_000)
	c := open()
	for n := range names {
		names[n] = fmt.Sprintf("connection %d", n)
		register(b, r, names[n], c)
	}
	return r, names
}

// BenchmarkLookup measures a Lookup among 10,000 names.
func BenchmarkLookup(b *testing.B) {
	r, names := filled(b)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if _, found := r.Lookup(names[n%len(names)]); !found {
			b.Fatal("not found")
		}
	}
}

// BenchmarkLookupParallel measures concurrent Lookups among 10,000 names.
func BenchmarkLookupParallel(b *testing.B) {
	r, names := filled(b)
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			r.Lookup(names[n%len(names)])
		}
	})
}

// BenchmarkRegisterUnregister measures a Register and an Unregister beside 10,000 names.
func BenchmarkRegisterUnregister(b *testing.B) {
	r, _ := filled(b)
	c := open()
	b.ReportAllocs()
	for b.Loop() {
		register(b, r, "n", c)
		unregister(b, r, "n", c)
	}
}

// BenchmarkAll measures one pass over 10,000 names.
func BenchmarkAll(b *testing.B) {
	r, _ := filled(b)
	b.ReportAllocs()
	for b.Loop() {
		var last *conn.Conn
		for _, c := range r.All() {
			last = c
		}
		if last == nil {
			b.Fatal("nothing found")
		}
	}
}
