package main

import (
	"strings"
	"testing"
)

// TestGroupsAreJudgedAlone checks that a group is judged by mutants that its own tests reach, first by those that
// the fewest others reach, and that what other tests would notice counts for nothing.
func TestGroupsAreJudgedAlone(t *testing.T) {
	writeModule(t, small)
	p, err := load(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	groups, err := parseGroups(strings.NewReader("G-1\tTestSum\nG-2\tTestCount TestGone\nG-3\tTestGone\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := judgeGroups(t.Context(), &out, p, groups, &options{most: 3, maps: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(out.String()) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 4 {
			t.Fatalf("%q has not four parts", line)
		}
		count[parts[0]+" "+parts[1]]++
		if parts[1] == "noticed" && parts[2] != map[string]string{"G-1": "TestSum", "G-2": "TestCount"}[parts[0]] {
			t.Errorf("%q: another test noticed it", line)
		}
	}
	if noticed := count["G-1 noticed"]; noticed+count["G-1 unnoticed"] != 3 || noticed == 0 {
		t.Errorf("of the group TestSum: %v\n%s", count, &out)
	}
	if count["G-2 noticed"] == 0 || count["G-3 noticed"]+count["G-3 unnoticed"] != 0 {
		t.Errorf("%v\n%s", count, &out)
	}
}

func TestWhatIsNoGroup(t *testing.T) {
	for _, text := range []string{"G-1 TestSum", "\tTestSum"} {
		if _, err := parseGroups(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a group", text)
		}
	}
}
