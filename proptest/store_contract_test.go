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

// A bentStore is a Store that is broken in one way.
type bentStore struct {
	registry.Local
	claim func(*registry.Local, context.Context, registry.Claim) (registry.Release, error)
	watch func(map[string]string, func(map[string]string) bool) bool
}

func (s *bentStore) Claim(ctx context.Context, c registry.Claim) (registry.Release, error) {
	if s.claim == nil {
		return s.Local.Claim(ctx, c)
	}
	return s.claim(&s.Local, ctx, c)
}

func (s *bentStore) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	if s.watch == nil {
		return s.Local.Watch(ctx)
	}
	return func(yield func(map[string]string, error) bool) {
		for news := range s.Local.Watch(ctx) {
			if !s.watch(news, func(told map[string]string) bool { return yield(told, nil) }) {
				return
			}
		}
	}
}

// storeContract runs the suite on a Store that is broken.
func storeContract(bend func() *bentStore) func(*testing.T) {
	return func(t *testing.T) {
		proptest.StoreContract(t, func(*testing.T) proptest.Stores {
			s := bend()
			return proptest.Stores{A: s, B: s}
		}, proptest.ContractOptions{})

	}
}

func claiming(claim func(*registry.Local, context.Context, registry.Claim) (registry.Release, error)) func(*testing.T) {
	return storeContract(func() *bentStore { return &bentStore{claim: claim} })
}

func generous(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
	if release, err := names.Claim(ctx, c); err == nil {
		return release, nil
	}
	return func(context.Context) error { return nil }, nil
}

func caseless(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
	c.Name = strings.ToLower(c.Name)
	return names.Claim(ctx, c)
}

func patient(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
	return names.Claim(context.WithoutCancel(ctx), c)
}

// releasesAny lets every Release of a name free it, whoever has it.
func releasesAny() *bentStore {
	latest := map[string]registry.Release{}
	return &bentStore{claim: func(names *registry.Local, ctx context.Context, c registry.Claim) (registry.Release, error) {
		release, err := names.Claim(ctx, c)
		if err != nil {
			return nil, err
		}
		latest[c.Name] = release
		return func(ctx context.Context) error { return latest[c.Name](ctx) }, nil
	}}
}

// nothingFirst tells what there is only when it has told of nothing.
func nothingFirst(news map[string]string, tell func(map[string]string) bool) bool {
	return tell(map[string]string{}) && tell(news)
}

// backwards tells of each holder that it was another before, and then again.
func backwards(news map[string]string, tell func(map[string]string) bool) bool {
	before := maps.Clone(news)
	for name, holder := range before {
		before[name] = holder[:len(holder)/2]
	}
	return tell(maps.Clone(news)) && tell(before) && tell(news)
}
