package proptest

import (
	"context"
	"maps"
	"sync"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// following adds up what a Store tells.
type following struct {
	t       rapid.TB
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	changed chan struct{} // capacity one: something has changed

	mu   sync.Mutex
	now  map[string]string
	told map[string][]string // of each name every holder, in the order that they were told
}

// follow begins to follow, until stop or the end of the trial.
func (s *stores) follow(from registry.Store) *following {
	f := &following{t: s.t, ended: make(chan struct{}), changed: make(chan struct{}, 1), now: map[string]string{}, told: map[string][]string{}}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	s.t.Cleanup(f.stop)
	go f.run(registry.New(registry.Options{Store: from}))
	return f
}

func (f *following) run(r *registry.Registry) {
	defer close(f.ended)
	for holding, err := range r.Holders(f.ctx) {
		if err == nil {
			f.note(holding)
		}
	}
}

func (f *following) note(h registry.Holding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Holder == "" {
		delete(f.now, h.Name)
	} else {
		f.now[h.Name] = h.Holder
		f.told[h.Name] = append(f.told[h.Name], h.Holder)
	}
	select {
	case f.changed <- struct{}{}:
	default: // it will be looked at already
	}
}

// await waits until what was told adds up to want.
func (f *following) await(want map[string]string) {
	f.t.Helper()
	for {
		f.mu.Lock()
		now := maps.Clone(f.now)
		f.mu.Unlock()
		if maps.Equal(now, want) {
			return
		}
		select {
		case <-f.changed:
		case <-f.ended:
			f.t.Fatalf("there is %v, and when it ended a watch had told %v", want, now)
		}
	}
}

// stop waits until nothing is told any more.
func (f *following) stop() {
	f.cancel()
	<-f.ended
}
