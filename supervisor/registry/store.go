package registry

import (
	"context"
	"iter"
	"maps"
	"slices"
)

// A Store says who has a name, among all that share it: within a process, or
// between many that see the same etcd, Redis or the like. It knows holders and
// not Conns, which stay where they are. proptest.StoreContract checks it.
//
// Its methods, and the functions it gives, may be called from any goroutine,
// and return soon after the end of their context. A Registry has at most one
// thing under way for each name.
type Store interface {
	// Claim takes a name that is free, atomically: of all that claim it, one has
	// it. It fails with a *TakenError when somebody has it, be it the same
	// holder, and with an error of its own when it cannot tell. A Claim that has
	// failed holds nothing: what came too late to be undone is not renewed. With
	// a context that has ended it fails.
	//
	// Names are told apart byte by byte. A Registry asks for those it allows only.
	Claim(ctx context.Context, c Claim) (Release, error)

	// Watch tells who has which name, of all holders, until ctx ends or its loop
	// is left. The first map is all there is, even if that is nothing; each later
	// one is what has changed, a name that is free again with the holder "". The
	// maps are the receiver's. Of each name states come in order; what was undone
	// before it was told may be left out, so that what waits for a slow loop is
	// bounded by the names there are.
	//
	// When it may have missed something, and cannot make up for it, it yields an
	// error and ends. Another Watch begins with all there is.
	Watch(ctx context.Context) iter.Seq2[map[string]string, error]
}

// A Claim asks for a name.
type Claim struct {
	Name   string
	Holder string // what others are told of who has it; not empty

	// Lost is to be called when the claim ends though nobody has released it: its
	// lease has run out, or somebody has removed it. That may be before Claim has
	// returned. It is not nil, and does not block for long. What it is told again,
	// or after the call of Release, changes nothing.
	//
	// A Store with leases calls it before the name can be another's, by its own
	// clock, however many of its servers it reaches.
	Lost func(error)
}

// A Release gives up the claim it came with, and no other, be it of the same
// name by the same holder. When it has returned nil the name is free. Called
// again, or after Lost, it does nothing. The Store does not renew a claim from the call of its Release on, whatever becomes
// of it: one that fails leaves the claim to its lease.
type Release func(context.Context) error

// A Holding says who has a name: Options.Holder of the Registry, "" for nobody
// any more.
type Holding struct {
	Name   string
	Holder string
}

// Holders tells who has which name, in all processes that share the Store: first
// of all names there are, then of those that change, until ctx ends or the loop
// is left. It runs on the loop's goroutine.
//
// When the Store may have missed something, its error comes, with no Holding.
// The loop may end there. If it goes on, after a pause of its own choice, the
// Store is asked again, and what differs by then is told: what was told adds up
// to what there is.
func (r *Registry) Holders(ctx context.Context) iter.Seq2[Holding, error] {
	return func(yield func(Holding, error) bool) {
		told := map[string]string{}
		for ctx.Err() == nil {
			err := r.watch(ctx, told, func(h Holding) bool { return yield(h, nil) })
			if err == nil || ctx.Err() != nil || !yield(Holding{}, err) {
				return
			}
		}
	}
}

// watch tells what differs from what was told, until the Store has no more to
// say. It returns nil when the loop was left.
func (r *Registry) watch(ctx context.Context, told map[string]string, tell func(Holding) bool) error {
	first := true
	for changed, err := range r.options.Store.Watch(ctx) {
		if err != nil {
			return err
		}
		if first {
			changed = withGone(changed, told)
			first = false
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			holder := changed[name]
			if told[name] == holder {
				continue
			}
			note(told, name, holder)
			if !tell(Holding{name, holder}) {
				return nil
			}
		}
	}
	return errEnded
}

// withGone adds to all that there is the names that were told and are gone.
func withGone(all, told map[string]string) map[string]string {
	for name := range told {
		if _, there := all[name]; !there {
			all[name] = ""
		}
	}
	return all
}

func note(told map[string]string, name, holder string) {
	if holder == "" {
		delete(told, name)
		return
	}
	told[name] = holder
}
