package cluster

import (
	"context"
	"sync"
	"time"
)

// A sweeping repeats a function every sweepInterval, from the first use of a store until its
// node is closed.
type sweeping struct{ begin sync.Once }

func (s *sweeping) once(n *Node, sweep func(context.Context)) {
	s.begin.Do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ctx.Err() != nil {
			return
		}
		n.running.Go(func() {
			ticker := time.NewTicker(sweepInterval)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					sweep(n.ctx)
				case <-n.ctx.Done():
					return
				}
			}
		})
	})
}
