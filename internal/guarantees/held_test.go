package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHeldIsReplaced checks that a measurement replaces what was known of the guarantees that were measured,
// keeps the rest, and forgets guarantees that are gone.
func TestHeldIsReplaced(t *testing.T) {
	b := read(t, map[string]string{
		heldFile: "G-0005.1\t1/7\tconn core.late: a < b => a <= b\tTestLate\nG-0005.2\t0/7\t\t\nG-0009.1\t0/7\t\t\n",
	})
	want := "G-0005.1\t1/7\tconn core.late: a < b => a <= b\tTestLate\nG-0005.2\t2/3\tconn core.late: a => b\tFuzzLate\n"
	got := formatHeld(b.replaceHeld(map[string]held{"G-0005.2": {2, 3, "conn core.late: a => b", "FuzzLate"}, "G-0007.1": {1, 1, "x", "y"}}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}
