package sizes

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	small [3]*int  // 24 bytes
	odd   [7]*int  // 56 bytes, of a size class of 64
	large [72]*int // 576 bytes, which is a size class, and a header of 8
)

// A reporter notes what Check reports.
type reporter struct {
	testing.TB
	errors []string
}

func (r *reporter) Helper() {}

func (r *reporter) Errorf(format string, all ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, all...))
}

// The heap gives an object as many bytes as onHeap says.
func TestHeapRoundsAsOnHeapSays(t *testing.T) {
	const many = 10_000
	held := func(make func() any) int {
		kept := [many]any{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i] = make()
		}
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		return int(after.TotalAlloc-before.TotalAlloc) / many
	}
	for _, c := range []struct {
		of   reflect.Type
		make func() any
	}{
		{reflect.TypeFor[small](), func() any { return new(small) }},
		{reflect.TypeFor[odd](), func() any { return new(odd) }},
		{reflect.TypeFor[large](), func() any { return new(large) }},
	} {
		if got, want := onHeap(c.of), held(c.make); got != want {
			t.Errorf("%v: %d bytes, but the heap gives it %d", c.of, got, want)
		}
	}
}

// Check reports a size that is wrong in either column and in any table, a type without a
// row, and a row without a type. It ignores rows of other packages and other tables.
func TestCheckReportsEachDifference(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       []string
	}{
		{"right", "| `sizes.small` | 24 | 24 | why |\n| `sizes.odd` of both | 56 | 64 | why |\n| `sizes.large` | 576 | 640 | why |", nil},
		{"part of another", "| `sizes.small` | 24 | – | why |\n| `sizes.odd` | 56 | – | why |\n| `sizes.large` | 576 | – | why |", nil},
		{"wrong bytes", "| `sizes.small` | 16 | 24 | |\n| `sizes.odd` | 56 | 64 | |\n| `sizes.large` | 576 | 640 | |",
			[]string{"sizes.small has 16 bytes, want 24"}},
		{"wrong in the second table", "| `sizes.small` | 24 | 24 | |\n| `sizes.odd` | 56 | 64 | |\n| `sizes.large` | 576 | 640 | |\n\n| `sizes.odd` | 64 | 64 | |",
			[]string{"sizes.odd has 64 bytes, want 56"}},
		{"wrong in the first table", "| `sizes.odd` | 64 | 64 | |\n\n| `sizes.small` | 24 | 24 | |\n| `sizes.odd` | 56 | 64 | |\n| `sizes.large` | 576 | 640 | |",
			[]string{"sizes.odd has 64 bytes, want 56"}},
		{"wrong on the heap", "| `sizes.small` | 24 | 32 | |\n| `sizes.odd` | 56 | 56 | |\n| `sizes.large` | 576 | 576 | |",
			[]string{"sizes.small has 32 bytes on the heap, want 24", "sizes.odd has 56 bytes on the heap, want 64", "sizes.large has 576 bytes on the heap, want 640"}},
		{"missing", "| `sizes.small` | 24 | 24 | |\n`sizes.odd` | 56 | 64\n| `sizes.large` | 576 | 640 | |", []string{"no row for sizes.odd"}},
		{"unknown", "| `sizes.small` | 24 | 24 | |\n| `sizes.odd` | 56 | 64 | |\n| `sizes.large` | 576 | 640 | |\n| `sizes.gone` | 1 | 8 | |\n| `conn.Conn` | 1 | 8 | |",
			[]string{"a row for sizes.gone, which was not checked"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "PAGE.md")
			if err := os.WriteFile(page, []byte(c.page), 0o600); err != nil {
				t.Fatal(err)
			}
			r := &reporter{TB: t}
			Check(r, page, new(small), new(odd), new(large))
			var got []string
			for _, text := range r.errors {
				text = strings.TrimPrefix(strings.TrimPrefix(text, page), ":")
				got = append(got, strings.TrimPrefix(strings.TrimSpace(text), "has "))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
		})
	}
}
