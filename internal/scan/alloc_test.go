//go:build !race

package scan_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// Reading does not allocate, nor does quoting a string into a slice with enough capacity. The
// race detector allocates, so the test is skipped under it.
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
			t.Error("the text was not accepted")
		}
		scan.AppendQuote(room, "a \"text\" with é\n")
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}
