package limits

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Those who wait for a server: so many of one client, so many in all, and so long.
const (
	mostWaitingOfOne = 64
	mostWaiting      = 1024
	longestTurn      = time.Minute
)

// The errors of Enter. Nothing was taken then.
var (
	ErrCrowded = errors.New("too many requests wait for it already")
	ErrLate    = errors.New("it was busy for a minute")
)

// Turns let so many requests to a server run at once. The others wait, and clients get places in turn, however many requests of each wait.
// The zero value is ready, and safe for concurrent use.
type Turns struct {
	mu      sync.Mutex
	places  int // as who entered last has said
	running int
	waiting int
	of      map[string][]*turn // those of a client that wait, the oldest first; never empty
	next    []string           // the clients in it, in the order of their turns
}

// A turn is a request that waits. Its channel is closed when it has a place.
type turn struct{ comes chan struct{} }

// Enter takes a place for a request of a client, of which there are so many. It waits for one, a minute at most. The error is ErrCrowded,
// ErrLate, or that of ctx.
func (t *Turns) Enter(ctx context.Context, client string, places int) error {
	mine, err := t.enter(client, places)
	if mine == nil {
		return err
	}
	late := time.NewTimer(longestTurn)
	defer late.Stop()
	select {
	case <-mine.comes:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = ErrLate
	}
	if !t.withdraw(client, mine) { // it came at the same moment
		return nil
	}
	return err
}

// Leave gives a place back.
func (t *Turns) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.grant()
}

// Waiting returns how many requests wait.
func (t *Turns) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// enter takes a place, or returns the turn to wait for.
func (t *Turns) enter(client string, places int) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.places = places
	switch {
	case t.running < places && t.waiting == 0:
		t.running++
		return nil, nil
	case t.waiting >= mostWaiting, len(t.of[client]) >= mostWaitingOfOne:
		return nil, ErrCrowded
	}
	mine := t.queue(client)
	t.grant() // there may be more places than before
	return mine, nil
}

// queue lets a request wait behind the others of its client, whose turn is the last one if it has none yet.
func (t *Turns) queue(client string) *turn {
	if t.of == nil {
		t.of = make(map[string][]*turn)
	}
	mine := &turn{make(chan struct{})}
	if len(t.of[client]) == 0 {
		t.next = append(t.next, client)
	}
	t.of[client] = append(t.of[client], mine)
	t.waiting++
	return mine
}

// grant gives each free place to the oldest request of the client whose turn it is.
func (t *Turns) grant() {
	for t.running < t.places && len(t.next) > 0 {
		client := t.next[0]
		close(t.of[client][0].comes)
		t.running++
		t.next = t.next[1:]
		if t.remove(client, 0) {
			t.next = append(t.next, client)
		}
	}
}

// withdraw removes a turn that nobody waits for any more. It reports false if it has come.
func (t *Turns) withdraw(client string, mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.of[client], mine)
	if i < 0 {
		return false
	}
	if !t.remove(client, i) {
		t.next = slices.DeleteFunc(t.next, func(c string) bool { return c == client })
	}
	return true
}

// remove removes the turn of a client, and reports whether others of it wait.
func (t *Turns) remove(client string, i int) (others bool) {
	t.waiting--
	if t.of[client] = slices.Delete(t.of[client], i, i+1); len(t.of[client]) == 0 {
		delete(t.of, client)
		return false
	}
	return true
}
