package clustertest

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// A watch is a loop over Watch that runs. The mutex of the Service guards it.
type watch struct {
	bucket, prefix string
	pending        []cluster.Entry // for the loop
	latest         map[string]int  // where in pending each key is last; "" is Current
	known          map[string]bool // the keys that exist for the loop when it has taken pending
	ready          chan struct{}   // capacity one: a token when something is pending
}

// Watch implements cluster.Bucket.
func (b *bucket) Watch(ctx context.Context, prefix string) iter.Seq[cluster.Entry] {
	return func(yield func(cluster.Entry) bool) {
		if rules.Prefix(prefix) != nil {
			return
		}
		e := b.engine
		w := &watch{bucket: b.options.Name, prefix: prefix, latest: map[string]int{}, known: map[string]bool{}, ready: make(chan struct{}, 1)}
		if !e.watch(w) {
			return
		}
		defer e.unwatch(w)
		for {
			entries, closed := e.take(w)
			if closed {
				return
			}
			for _, entry := range entries {
				if ctx.Err() != nil || !yield(entry) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-w.ready:
			}
		}
	}
}

// watch adds a watch, unless the Engine is closed.
func (e *Engine) watch(w *watch) bool {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	if e.closed {
		return false
	}
	e.watches = append(e.watches, w)
	if !e.cut { // otherwise it begins when the connection is back
		e.sent.Add(1)
		e.service.expire()
		e.refresh(w)
	}
	return true
}

func (e *Engine) unwatch(w *watch) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	e.watches = slices.DeleteFunc(e.watches, func(other *watch) bool { return other == w })
}

// take returns what is pending, without what a later entry of the same key has replaced, and
// whether the Engine is closed.
func (e *Engine) take(w *watch) (entries []cluster.Entry, closed bool) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	for i, entry := range w.pending {
		if w.latest[entry.Key] == i {
			entries = append(entries, entry)
		}
	}
	w.pending = nil
	clear(w.latest)
	return entries, e.closed
}

// changed tells the watches of a change.
func (e *Engine) changed(bucket string, entry cluster.Entry) {
	for _, w := range e.watches {
		if w.bucket != bucket || !strings.HasPrefix(entry.Key, w.prefix) || e.cut || e.frozen != nil {
			continue // after Heal and Thaw it gets everything again
		}
		f := e.fault(Operation{Name: "change", Subject: bucket, Key: entry.Key})
		if f.Lose {
			e.refresh(w)
			continue
		}
		e.down.send(f.Delay, func() {
			e.received.Add(1)
			entry.Value = bytes.Clone(entry.Value) // each loop has its own
			w.push(entry)
		})
		if f.Cut {
			e.cutOff()
		}
	}
}

// refresh makes a watch yield everything, as it is now.
func (e *Engine) refresh(w *watch) {
	entries := e.view(w.bucket).entries(w.prefix)
	e.down.send(0, func() {
		gone := w.known
		for _, entry := range entries {
			delete(gone, entry.Key)
		}
		w.known = map[string]bool{}
		for key := range gone {
			w.push(cluster.Entry{Key: key, Deleted: true})
		}
		for _, entry := range entries {
			e.received.Add(1)
			w.push(entry)
		}
		w.push(cluster.Entry{Current: true})
	})
}

// push adds an entry, in place of an earlier one of the same key.
func (w *watch) push(entry cluster.Entry) {
	w.latest[entry.Key] = len(w.pending)
	w.pending = append(w.pending, entry)
	switch {
	case entry.Deleted:
		delete(w.known, entry.Key)
	case !entry.Current:
		w.known[entry.Key] = true
	}
	w.wake()
}

func (w *watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default: // it has one
	}
}
