package streamable

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A bodyBudget limits the bytes of bodies that one handler holds until they are delivered. The first
// web.SmallBody bytes of each body are of a separate pool, so that small bodies never wait for large ones.
type bodyBudget struct {
	maxBody      int // the maximum size of one body, in bytes
	small, large *share.Pool
	first        sync.Pool // of *[firstRead]byte
	turns        *turn.Scheduler[share.Client]
}

func newBodyBudget(maxBody, maxHeld int, stopped <-chan struct{}) *bodyBudget {
	// shared: the first 64 KiB of bodies that arrive | HandlerOptions.MaxHeld bytes | 64 KiB | the body waits, 30 s at most, and is refused with 503 and -32050 | `HTTPSample.Held`, `HTTPSample.Refused`
	// shared: the rest of these bodies | HandlerOptions.MaxHeld bytes | 256 KiB | the body waits, 30 s at most, and is refused with 503 and -32050 | `HTTPSample.Held`, `HTTPSample.Refused`
	return &bodyBudget{
		maxBody: maxBody,
		small:   share.New(maxHeld, web.SmallBody, stopped), large: share.New(maxHeld, largePiece, stopped),
		first: sync.Pool{New: func() any { return new([firstRead]byte) }},
		turns: turn.New[share.Client](runtime.GOMAXPROCS(0)),
	}
}

// held returns how many bytes of bodies are held.
func (bodies *bodyBudget) held() int { return bodies.small.Held() + bodies.large.Held() }

// A holding is what one body has taken from a pool.
type holding struct {
	from  *share.Pool
	of    share.Client
	bytes int
}

// keep gives back all but n bytes.
func (h *holding) keep(n int) {
	if unused := h.bytes - max(0, n); unused > 0 {
		h.from.Give(h.of, unused)
		h.bytes -= unused
	}
}

// largePiece is how much of a pool for what is large a client may have if it is free, however little that is.
// It is much less than one large body, so that few clients cannot fill the pool with pieces.
const largePiece = 256 << 10

// requestPatience is how long a request that has arrived may wait here, for its turn and until those that are served
// leave room: as long as it may wait for its handler, by default.
const requestPatience = 10 * time.Second

// served are the pools of requests that are served: from before a request is delivered until its handler has returned,
// it counts its bytes and what its values take when decoded.
//
// A large request may take its pool's whole piece, so that each is served in its turn: two clients with slow calls can keep
// others that are large waiting. Medium ones have a pool of their own, which no few clients fill.
type served struct {
	small, medium, large *share.Pool
	open                 *share.Pool     // of requests above the small ones that stay open, which leave no room for a long time
	mostMedium           int             // what a medium request counts at most
	stopped              <-chan struct{} // after that no request waits
}

func newServed(maxHeld int, stopped <-chan struct{}) *served {
	most := max(maxHeld, 8*smallSize)
	// shared: requests that are served, up to 64 KiB with their values | HandlerOptions.MaxHeld bytes | 64 KiB | the request waits, 10 s at most, and is refused with 503 and -32050 | `HTTPSample.Refused`
	// shared: those up to a 32nd of MaxHeld, 1 MiB | HandlerOptions.MaxHeld/4 bytes | 64 KiB | the request waits, 10 s at most, and is refused with 503 and -32050 | `HTTPSample.Refused`
	// shared: larger ones | HandlerOptions.MaxHeld/2 bytes | half, which is also what one request counts at most | the request waits, 10 s at most, and is refused with 503 and -32050 | `HTTPSample.Refused`
	// shared: those above 64 KiB that stay open: `subscriptions/listen` | HandlerOptions.MaxHeld/4 bytes | 64 KiB; one counts at most an eighth | the request is refused with 503 and -32050 | `HTTPSample.Refused`
	return &served{
		small: share.NewLasting(most, smallSize), medium: share.NewLasting(most/4, smallSize), large: share.New(most/2, most/4, stopped),
		open: share.NewLasting(most/4, smallSize), mostMedium: most / 32, stopped: stopped,
	}
}

// largestOpen is the part of its pool that a request which stays open counts at most: a client gets so much even when
// half of the pool is in use.
const largestOpen = 8

// take takes room for a request of a client, and returns how much: its cost or, if that is more, what one
// request counts at most; it is negative for one that stays open. Take waits until there is room. It reports
// false, and takes nothing, if there is none before due or ctx ends first.
func (s *served) take(ctx context.Context, due time.Time, of share.Client, cost int, staysOpen bool) (taken int, ok bool) {
	if staysOpen && cost > smallSize {
		taken = max(-cost, -s.open.Limit()/largestOpen)
		return taken, s.open.Take(of, -taken)
	}
	pool, taken := s.pool(cost)
	taken = pool.Fit(of, taken)
	claim := pool.Claim(of, taken)
	if claim == nil {
		return taken, true
	}
	patience := time.NewTimer(time.Until(due))
	defer patience.Stop()
	select {
	case <-claim.Granted():
		return taken, true
	case <-patience.C:
	case <-ctx.Done():
	case <-s.stopped:
	}
	claim.Withdraw()
	return 0, false
}

// pool returns the pool from which so much is taken, and how much that is.
func (s *served) pool(taken int) (*share.Pool, int) {
	switch {
	case taken < 0:
		return s.open, -taken
	case taken <= smallSize:
		return s.small, taken
	case taken <= s.mostMedium:
		return s.medium, taken
	default:
		return s.large, taken
	}
}

// give gives back what take has taken.
func (s *served) give(of share.Client, taken int) {
	if taken != 0 {
		pool, n := s.pool(taken)
		pool.Give(of, n)
	}
}

// smallSize is the size up to which a message or a request counts for a separate pool.
const smallSize = web.SmallMessage

const frameOverhead = web.FrameOverhead

// answerRoom is how many bytes are reserved for the answer to a request before the request is delivered: enough
// for an error with an id of usual length.
const answerRoom = 1<<10 + frameOverhead

// newUnread returns the pools of messages that wait to be written.
func newUnread(o *HandlerOptions) *web.Unread {
	piece := 256 << 10
	if o.MaxUnread < 4*o.MaxFrame { // there is little room: one message always fits if it is free
		piece = o.MaxFrame + frameOverhead
	}
	// shared: messages up to 64 KiB that wait to be written | HandlerOptions.MaxUnread bytes | 64 KiB | the request is refused with 503 and -32050; an answer is dropped with -32051 | `HTTPSample.Refused`
	// shared: longer messages | HandlerOptions.MaxUnread bytes | 256 KiB | the answer is dropped with -32051 | –
	return &web.Unread{Small: share.NewLasting(o.MaxUnread, smallSize+frameOverhead), Large: share.NewLasting(o.MaxUnread, piece)}
}

// poolOfPage returns the pool for events that are replayed together, and how many
// bytes they count.
func poolOfPage(u *web.Unread, of share.Client, page []StoredEvent) (*share.Pool, int) {
	bytes := 0
	for _, e := range page {
		bytes += costOf(e)
	}
	if bytes > smallSize+eventOverhead {
		return u.Large, u.Large.Fit(of, bytes)
	}
	return u.Small, bytes
}

// A budget is an amount that is granted in the order of the claims: the credit of a link. Nobody overtakes, so that
// messages that are not requests are delivered in their order. Its zero value has nothing to grant.
type budget struct {
	mu      sync.Mutex
	free    int
	waiting []*claim
}

type claim struct {
	n       int
	granted chan struct{}
}

// wait waits until a claim is granted. It reports false if ctx ends or stop is closed
// first.
func (b *budget) wait(ctx context.Context, stop <-chan struct{}, c *claim) bool {
	select {
	case <-c.granted:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	b.withdraw(c)
	return false
}

// claim takes n and returns nil, if there is enough and nobody waits.
func (b *budget) claim(n int) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		return nil
	}
	c := &claim{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	return c
}

func (b *budget) withdraw(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// It may have been granted meanwhile, which nobody uses then.
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.free += c.n
	}
	b.grant()
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.grant()
}

// grant grants the oldest claims, as long as there is enough.
func (b *budget) grant() {
	served := 0
	for _, c := range b.waiting {
		if b.free < c.n {
			break
		}
		b.free -= c.n
		close(c.granted)
		served++
	}
	if b.waiting = slices.Delete(b.waiting, 0, served); len(b.waiting) == 0 {
		b.waiting = nil
	}
}

// firstRead is how many bytes of a body may arrive before room is claimed.
const firstRead = 4 << 10
