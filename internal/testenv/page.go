package testenv

import (
	"os"
	"testing"
)

// Page compares a page of the repository with what is generated for it. With update set, it
// rewrites the page first. It does not print the difference, which may be as long as the page: after
// an update, git shows it.
func Page(t testing.TB, path, want string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		// A missing page is stale, too: it was never generated.
		t.Errorf("%s is stale (%v); make docs, or this test with -update, rewrites it", path, err)
	}
}
