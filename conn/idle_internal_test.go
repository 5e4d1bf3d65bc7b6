package conn

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// The sizes of an idle connection's parts are those that docs/design/IDLE.md names.
func TestIdleConnectionIsAsLargeAsTheDocumentSays(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return // the document is for 64 bits
	}
	page, err := os.ReadFile("../docs/design/IDLE.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]uintptr{
		"Conn": unsafe.Sizeof(Conn{}), "core": unsafe.Sizeof(core{}), "loop": unsafe.Sizeof(loop{}), "statusCell": unsafe.Sizeof(statusCell{}),
		"notifications": unsafe.Sizeof(notifications{}), "endings": unsafe.Sizeof(endings{}), "Incarnation": unsafe.Sizeof(Incarnation{}),
		"receiver": unsafe.Sizeof(receiver{}),
	} {
		if row := fmt.Sprintf("| `conn.%s` | %d |", name, size); !strings.Contains(string(page), row) {
			t.Errorf("the document has no row %q", row)
		}
	}
}
