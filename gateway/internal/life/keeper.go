// Package life says when a server of a gateway runs: which Rule the file has for it, how it is used, and when it ends.
//
// Who uses a server holds its Use, and then looks whether it is asleep. Who ends it lets it fall asleep first, which it does only if nobody
// holds it. So no call is on its way to a server that is being ended.
//
// # Goroutines
//
// A Keeper has one, on which it looks, and one for each server that is being ended: that may take seconds. Close waits for them.
package life

import (
	"context"
	"sync"
	"time"
)

// A Keeper looks at servers when one of them may have to end. End it with Close.
type Keeper struct {
	look   func(now time.Time) (next time.Time)
	check  chan struct{} // holds one: many changes are one
	ending context.Context
	end    context.CancelFunc

	mu      sync.Mutex
	begun   bool
	running sync.WaitGroup
}

// NewKeeper returns a Keeper that has no goroutine until Check. Look is called by one goroutine at a time; it returns when to look again at the
// latest, and never is the zero time.
func NewKeeper(look func(now time.Time) (next time.Time)) *Keeper {
	k := &Keeper{look: look, check: make(chan struct{}, 1)}
	k.ending, k.end = context.WithCancel(context.Background())
	return k
}

// Check makes the Keeper look now, on its goroutine. After Close it does nothing.
func (k *Keeper) Check() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case k.check <- struct{}{}:
	default:
	}
	if !k.begun && k.ending.Err() == nil {
		k.begun = true
		k.running.Go(k.run)
	}
}

// Go calls f, which ends a server, on a goroutine of its own, and looks again when it returns. Only look may call it. Close cancels the context.
func (k *Keeper) Go(f func(context.Context)) {
	k.running.Go(func() {
		defer k.Check()
		f(k.ending)
	})
}

// Close returns when nothing is being ended any more.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.running.Wait()
}

func (k *Keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.ending.Done():
			return
		case <-k.check:
		case <-timer.C:
		}
		if next := k.look(time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}
