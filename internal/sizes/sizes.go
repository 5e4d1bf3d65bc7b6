// Package sizes compares the sizes of types with a page that lists them.
package sizes

import (
	"bufio"
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A row is a line of a table on the page that describes one type.
type row struct{ bytes, heap string }

// first matches a cell that names a type of a package, such as `conn.Conn`.
var first = regexp.MustCompile("^`(\\w+\\.\\w+)`")

// Check compares all rows of a page that name a type of one package with the types to
// which values point. Each row has the size of its type, and the size that the heap gives
// to an object of it, or "–" if such an object is always part of another. Each type has a
// row, and each row of the package has a type. The page is for 64 bits.
func Check(t testing.TB, page string, values ...any) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if strconv.IntSize != 64 {
		return
	}
	rows, checked := read(text), make(map[string]bool)
	for _, value := range values {
		of := reflect.TypeOf(value).Elem()
		checked[nameOf(of)] = true
		checkType(t, page, rows[nameOf(of)], of)
	}
	for name := range rows {
		pkg, _, _ := strings.Cut(name, ".")
		if ours, _, _ := strings.Cut(reflect.TypeOf(values[0]).Elem().String(), "."); pkg == ours && !checked[name] {
			t.Errorf("%s has a row for %s, which was not checked", page, name)
		}
	}
}

// checkType compares a type with its rows of a page.
func checkType(t testing.TB, page string, rows []row, of reflect.Type) {
	t.Helper()
	if len(rows) == 0 {
		t.Errorf("%s has no row for %v", page, of)
	}
	for _, r := range rows {
		if r.bytes != strconv.Itoa(int(of.Size())) {
			t.Errorf("%s: %v has %s bytes, want %d", page, of, r.bytes, of.Size())
		}
		if r.heap != "–" && r.heap != strconv.Itoa(onHeap(of)) {
			t.Errorf("%s: %v has %s bytes on the heap, want %d", page, of, r.heap, onHeap(of))
		}
	}
}

// nameOf returns the name of a type as a row has it: without its type parameters, which would
// make the row of a generic type unreadable.
func nameOf(of reflect.Type) string {
	name, _, _ := strings.Cut(of.String(), "[")
	return name
}

// read returns the rows of a page by the name of their type. A type can be in several
// tables.
func read(page []byte) map[string][]row {
	rows := make(map[string][]row)
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		cells := strings.Split(lines.Text(), "|")
		if len(cells) < 5 { // those before, between and behind the bars
			continue
		}
		if name := first.FindStringSubmatch(strings.TrimSpace(cells[1])); name != nil {
			rows[name[1]] = append(rows[name[1]], row{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])})
		}
	}
	return rows
}

// onHeap returns how many bytes the heap gives to an object of a type with pointers. A
// large one has a header, which tells the garbage collector its type.
func onHeap(of reflect.Type) int {
	const largest, header = 512, 8
	size := int(of.Size())
	if size > largest {
		size += header
	}
	return cap(append([]byte(nil), make([]byte, size)...)) // append takes all that the size class has
}
