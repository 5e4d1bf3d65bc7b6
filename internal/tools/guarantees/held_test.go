package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHeldIsReplaced checks that the measurement of a package replaces what was known of it, keeps what is known of
// others, and forgets guarantees and packages that have no test any more.
func TestHeldIsReplaced(t *testing.T) {
	b := read(t, map[string]string{
		"stdio/late_test.go": "package stdio\n// Guarantees: G-0005.1\nfunc TestLate(t *testing.T) {}",
		heldFile: "G-0005.1\tconn\t1/7\tcore.late: a < b => a <= b\tTestLate\nG-0005.1\tstdio\t0/7\n" +
			"G-0005.1\tgone\t0/7\nG-0005.2\tconn\t0/7\t\t\nG-0009.1\tconn\t0/7\t\t\n",
	})
	b.replaceHeld("conn", []string{"G-0005.1", "G-0005.2", "G-0007.1"}, map[string]held{
		"G-0005.2": held{1, 1, "main: a => b", ""}.and(held{1, 2, "core.late: a => b", "FuzzLate"}), "G-0007.1": {1, 1, "x", "y"},
	})
	want := "G-0005.1\tstdio\t0/7\nG-0005.2\tconn\t2/3\tcore.late: a => b\tFuzzLate\n"
	if diff := cmp.Diff(want, b.Held.String()); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}

// TestPageSaysWhatWasNotMeasured checks the cell of a guarantee that is tested in two packages.
func TestPageSaysWhatWasNotMeasured(t *testing.T) {
	for text, want := range map[string]string{
		"": "not measured",
		"G-0005.1\tconn\t2/7\tlate: a => b\tTestLate\n":                       "2 of 7: `late: a => b`; measured in 1 of 2 packages",
		"G-0005.1\tconn\t0/7\n":                                               "**none of 7**; measured in 1 of 2 packages",
		"G-0005.1\tconn\t0/7\nG-0005.1\tstdio\t1/2\tlate: a => b\tTestLate\n": "1 of 9: `late: a => b`",
	} {
		b := read(t, map[string]string{
			"stdio/late_test.go": "package stdio\n// Guarantees: G-0005.1\nfunc TestLate(t *testing.T) {}", heldFile: text,
		})
		if got := b.heldCell("G-0005.1"); got != want {
			t.Errorf("of %q the page says %q, want %q", text, got, want)
		}
	}
}

// TestPackagesThatAreNamed checks which packages the arguments of -held name.
func TestPackagesThatAreNamed(t *testing.T) {
	for folder, want := range map[string]bool{"conn": true, "conn/x": false, "transport": true, "transport/stdio": true, "transports": false, "auth": false} {
		o := options{packages: []string{"./conn", "transport/..."}}
		if o.names(folder) != want {
			t.Errorf("%s is named: %v", folder, !want)
		}
	}
	if o := new(options); !o.names("auth") {
		t.Error("without arguments not every package is measured")
	}
}
