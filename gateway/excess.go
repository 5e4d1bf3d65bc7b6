package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

const (
	listsAtOnce  = 8           // how often the lists of a server are read again without a wait
	maxPages     = 100         // of a list that are read
	listInterval = time.Second // between two readings after that: clients are not told of changes more often
)

// An excess is what a server does too much of. It is bounded, and the report says so.
type excess struct {
	mu      sync.Mutex
	due     time.Time               // when the readings so far are paid for, one in each listInterval
	slowed  bool                    // the last one had to wait
	endless map[catalogue.Kind]bool // lists that have more pages than are read
}

// pace waits before a list that has changed is read again: one that changes whenever it is read would be read without a pause. It returns false
// if the session ends meanwhile.
func (e *excess) pace(ctx context.Context) bool {
	e.mu.Lock()
	now := time.Now()
	if e.due.Before(now) {
		e.due = now
	}
	e.due = e.due.Add(listInterval)
	wait := e.due.Sub(now) - listsAtOnce*listInterval
	e.slowed = wait > 0
	e.mu.Unlock()
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// setEndless notes whether a list has more pages than were read.
func (e *excess) setEndless(kind catalogue.Kind, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.endless == nil {
		e.endless = make(map[catalogue.Kind]bool)
	}
	if e.endless[kind] = is; !is {
		delete(e.endless, kind)
	}
}

// notices says what the server does too much of; session is nil if it has none.
func (e *excess) notices(session *client.Session) (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(e.endless)) {
		all = append(all, fmt.Sprintf("%s: only the first %d pages are read", kind, maxPages))
	}
	if e.slowed {
		all = append(all, fmt.Sprintf("its lists change all the time: they are read every %v", listInterval))
	}
	if session == nil {
		return all
	}
	if n := session.Conn().Control().Sample().Conn.Shed; n > 0 {
		all = append(all, fmt.Sprintf("%d of its notifications were dropped: it sends more than can be passed on", n))
	}
	return all
}
