package cluster_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

func registryLosesNames(t *testing.T, a, b testNode) {
	var lost time.Duration
	began := time.Now()
	if _, err := a.Registry().Claim(t.Context(), registry.Claim{Name: "n", Holder: "h", Lost: func(error) { lost = time.Since(began) }}); err != nil {
		t.Fatal(err)
	}
	var seen []map[string]string
	go func() {
		for names, err := range b.Registry().Watch(t.Context()) {
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, names) // which is the watcher's own
		}
	}()
	a.engine.Cut()
	advance(cluster.LeaseTTL + time.Second)
	if lost != cluster.LeaseHeld {
		t.Errorf("the name was lost after %v", lost)
	}
	if len(seen) != 2 || seen[0]["n"] != "h" || len(seen[1]) != 1 || seen[1]["n"] != "" {
		t.Errorf("a watcher has seen %v", seen)
	}
	_, err := b.Registry().Claim(t.Context(), registry.Claim{Name: "n", Holder: "other", Lost: func(error) {}})
	if err != nil {
		t.Error(err)
	}
	a.engine.Heal()
	synctest.Wait()
	var taken *registry.TakenError
	if _, err := a.Registry().Claim(t.Context(), registry.Claim{Name: "n", Holder: "h", Lost: func(error) {}}); !errors.As(err, &taken) || taken.Holder != "other" {
		t.Errorf("%v, want a TakenError", err)
	}
}
