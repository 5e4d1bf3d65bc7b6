package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite docs/guarantees.md, docs/features.md and the index of docs/adr/README.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

// TestEveryGuaranteeIsHeld checks this repository: each guarantee has a test, each
// claim has a guarantee, and the guarantees are numbered in order.
func TestEveryGuaranteeIsHeld(t *testing.T) {
	catalog := repository(t)
	if len(catalog.Records) == 0 {
		t.Fatal("no record was found: the wrong folder was read")
	}
	for _, problem := range catalog.Problems {
		t.Error(problem)
	}
}

// TestPagesAreFresh compares the generated pages of this repository with its
// records and tests. With -update it rewrites them.
func TestPagesAreFresh(t *testing.T) {
	catalog := repository(t)
	checkPage(t, "docs/guarantees.md", func(string) (string, error) { return catalog.Page(), nil })
	checkPage(t, "docs/adr/README.md", catalog.Index)
}

func repository(t *testing.T) *Catalog {
	t.Helper()
	catalog, err := Read(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// checkPage compares a page with the result of generate.
func checkPage(t *testing.T, name string, generate func(string) (string, error)) {
	t.Helper()
	file := filepath.Join(root, filepath.FromSlash(name))
	got, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want, err := generate(string(got))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is stale; run make docs (-want +got):\n%s", name, diff)
	}
}
