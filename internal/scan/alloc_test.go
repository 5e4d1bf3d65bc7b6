//go:build !race

package scan_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// Reading allocates nothing, and writing a string into room that is there neither. The
// race detector allocates, so it is not asked.
//
// Guarantees: G-0056.5
func TestScanAllocatesNothing(t *testing.T) {
	raw := []byte(`{"name":"echo","arguments":{"a":[1,true,{"b":"\n"}]}}`)
	room := make([]byte, 0, 100)
	allocated := testing.AllocsPerRun(100, func() {
		text := scan.Unique(raw)
		for range text.Members {
			text.Value()
		}
		if !text.End() {
			t.Error("not sure")
		}
		scan.AppendQuote(room, "a \"text\" with é\n")
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}
