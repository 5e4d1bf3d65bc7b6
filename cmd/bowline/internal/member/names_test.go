package member

import "testing"

// Each process of a machine has a name of its own, and the same one again after a restart.
func TestNamesOfNodes(t *testing.T) {
	folder := t.TempDir()
	first, lock, err := takeName(folder)
	if err != nil {
		t.Fatal(err)
	}
	second, other, err := takeName(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if first == second || !clusterName.MatchString(first) || !clusterName.MatchString(second) {
		t.Errorf("the names are %q and %q", first, second)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, lock, err := takeName(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if again != first {
		t.Errorf("after a restart the name is %q, want %q", again, first)
	}
}
