package proptest_test

import (
	"context"
	"iter"
	"maps"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A brokenStore is a Store that is broken in one way.
type brokenStore struct {
	registry.Local
	claim func(*registry.Local, context.Context, registry.Claim) (registry.Release, error)
	watch func(map[string]string, func(map[string]string) bool) bool
}

func (s *brokenStore) Claim(ctx context.Context, c registry.Claim) (registry.Release, error) {
	if s.claim == nil {
		return s.Local.Claim(ctx, c)
	}
	return s.claim(&s.Local, ctx, c)
}

func (s *brokenStore) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	if s.watch == nil {
		return s.Local.Watch(ctx)
	}
	return func(yield func(map[string]string, error) bool) {
		for names := range s.Local.Watch(ctx) {
			if !s.watch(names, func(changed map[string]string) bool { return yield(changed, nil) }) {
				return
			}
		}
	}
}

// storeContract runs the suite on a Store that is broken.
func storeContract(newStore func() *brokenStore) func(*testing.T) {
	return func(t *testing.T) {
		proptest.StoreContract(t, func(*testing.T) proptest.Stores {
			s := newStore()
			return proptest.Stores{A: s, B: s}
		}, proptest.ContractOptions{})
	}
}

func brokenClaim(claim func(*registry.Local, context.Context, registry.Claim) (registry.Release, error)) func(*testing.T) {
	return storeContract(func() *brokenStore { return &brokenStore{claim: claim} })
}

func grantEveryClaim(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
	if release, err := names.Claim(ctx, c); err == nil {
		return release, nil
	}
	return func(context.Context) error { return nil }, nil
}

func ignoreCase(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
	c.Name = strings.ToLower(c.Name)
	return names.Claim(ctx, c)
}

func ignoreContext(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
	return names.Claim(context.WithoutCancel(ctx), c)
}

// releasesAny lets every Release of a name free it, whichever claim has it.
func releasesAny() *brokenStore {
	latest := map[string]registry.Release{}
	return &brokenStore{claim: func(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
		release, err := names.Claim(ctx, c)
		if err != nil {
			return nil, err
		}
		latest[c.Name] = release
		return func(ctx context.Context) error { return latest[c.Name](ctx) }, nil
	}}
}

// emptyFirst reports an empty map before the names.
func emptyFirst(names map[string]string, report func(map[string]string) bool) bool {
	return report(map[string]string{}) && report(names)
}

// oldHolders reports the names, then each name with an earlier holder, and then the names again.
func oldHolders(names map[string]string, report func(map[string]string) bool) bool {
	before := maps.Clone(names)
	for name, holder := range before {
		before[name] = holder[:len(holder)/2]
	}
	return report(maps.Clone(names)) && report(before) && report(names)
}
