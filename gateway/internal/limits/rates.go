package limits

import (
	"sync"
	"time"
)

// mostRated is how many clients, or tools of a client, are told apart that have made a request within the last minute. All beyond them share.
const mostRated = 1 << 16

// Rates count requests: each key may spend so many a minute. A key that has spent none for a minute may spend them at once; after that,
// they come back one after the other. The zero value is ready, and safe for concurrent use.
type Rates[K comparable] struct {
	mu   sync.Mutex
	full map[K]time.Time // when it will have all of its requests again; who is not in it, or whose time is over, has all
	// When those with all of their requests were last removed, and how many were left.
	swept time.Time
	left  int
}

// Spend takes one request of a key that may spend so many a minute. It returns 0, or how long it is until the next one may be spent.
func (r *Rates[K]) Spend(now time.Time, key K, perMinute int) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	interval := time.Minute / time.Duration(perMinute)
	key = r.known(now, key)
	full := r.full[key]
	if full.Before(now) {
		full = now
	}
	full = full.Add(interval)
	if wait = full.Sub(now) - time.Minute; wait > 0 {
		return wait
	}
	r.full[key] = full
	return 0
}

// giveBack gives a key one of its requests back. One for which there is no room of its own does without.
func (r *Rates[K]) giveBack(key K, perMinute int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if full, known := r.full[key]; known {
		r.full[key] = full.Add(-time.Minute / time.Duration(perMinute))
	}
}

// known returns the key under which a request is counted: its own, or that of all for which there is no room.
func (r *Rates[K]) known(now time.Time, key K) K {
	if r.full == nil {
		r.full = make(map[K]time.Time)
	}
	if _, ok := r.full[key]; ok {
		return key
	}
	if n := len(r.full); n >= max(2*r.left, 64) || n >= mostRated && now.Sub(r.swept) >= time.Second {
		for k, full := range r.full {
			if full.Before(now) {
				delete(r.full, k)
			}
		}
		r.left, r.swept = len(r.full), now
	}
	if len(r.full) >= mostRated {
		var others K
		return others
	}
	return key
}

// Places count what each client has under way. The zero value is ready, and safe for concurrent use.
type Places struct {
	mu   sync.Mutex
	held map[string]int
}

// Enter takes a place of a client that may hold so many. It reports false if it holds them already.
func (p *Places) Enter(client string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[client] >= most {
		return false
	}
	if p.held == nil {
		p.held = make(map[string]int)
	}
	p.held[client]++
	return true
}

// Leave gives a place back.
func (p *Places) Leave(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[client]--; p.held[client] == 0 {
		delete(p.held, client)
	}
}
