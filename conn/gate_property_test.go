package conn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// A line is the gate as one would draw it: who waits in order, and who holds a
// place since when.
type line struct {
	known         []int // who has asked, and not left
	waiting, held []int
	since         map[int]time.Time
	places        int
	hold          time.Duration
}

// serve gives places to those who have waited longest, and names them.
func (q *line) serve() (served []int) {
	for len(q.waiting) > 0 {
		if len(q.held) == q.places {
			if time.Since(q.since[q.held[0]]) < q.hold {
				return served
			}
			q.held = q.held[1:]
		}
		next := q.waiting[0]
		q.waiting, q.held = q.waiting[1:], append(q.held, next)
		q.since[next] = time.Now()
		served = append(served, next)
	}
	return served
}

func (q *line) leave(i int) {
	is := func(other int) bool { return other == i }
	q.known = slices.DeleteFunc(q.known, is)
	q.waiting, q.held = slices.DeleteFunc(q.waiting, is), slices.DeleteFunc(q.held, is)
}

// TestGateIsAQueue has loops ask, leave and let time pass in any order.
//
// Guarantees: G-0027.1, G-0027.2, G-0027.3, G-0027.5, G-0027.6
func TestGateIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, queueUp) })
}

func queueUp(t *rapid.T) {
	places := rapid.IntRange(1, 3).Draw(t, "places")
	g := &Gate{Places: places, Hold: 10 * time.Second}
	q := &line{places: places, hold: g.Hold, since: map[int]time.Time{}}
	loops, asked := []*loop{idle(), idle(), idle(), idle(), idle(), idle()}, make([]uint64, 6)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		var served []int
		i := rapid.IntRange(0, len(loops)-1).Draw(t, "who")
		switch what := rapid.IntRange(0, 2).Draw(t, "what"); {
		case what == 0 && !slices.Contains(q.known, i):
			asked[i]++
			g.ask(loops[i], asked[i])
			q.known, q.waiting = append(q.known, i), append(q.waiting, i)
		case what == 1:
			g.leave(loops[i])
			q.leave(i)
		default:
			for range rapid.IntRange(1, 12).Draw(t, "seconds") {
				pass(time.Second)
				served = append(served, q.serve()...)
			}
		}
		served = append(served, q.serve()...)
		for i, l := range loops {
			var want []uint64
			if slices.Contains(served, i) {
				want = []uint64{asked[i]}
			}
			if got := admissions(l); !slices.Equal(got, want) {
				t.Fatalf("loop %d was told of places for %v, want %v", i, got, want)
			}
		}
		if g.runs() != (len(q.waiting) > 0) {
			t.Fatalf("%d wait, and the timer runs: %v", len(q.waiting), g.runs())
		}
	}
	for _, l := range loops {
		g.leave(l)
	}
	g.wantEmpty(t)
}

// A fate is what becomes of an attempt, as its transport and its handshake
// have it.
type fate int

const (
	begins fate = iota
	failsToOpen
	hangsOpening
	hangsShaking
	failsToShake
	panicsOnFailure
	fates
)

var errFate = errors.New("fate")

func (f *fate) open(ctx context.Context) (transport.Link, error) {
	switch *f {
	case failsToOpen, panicsOnFailure:
		return nil, errFate
	case hangsOpening:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	default:
		return deadLink{}, nil
	}
}

func (f *fate) shake(ctx context.Context, _ *Incarnation) error {
	switch *f {
	case failsToShake:
		return errFate
	case hangsShaking:
		<-ctx.Done()
		return context.Cause(ctx)
	default:
		return nil
	}
}

func (f *fate) final(Reason) bool {
	if *f == panicsOnFailure {
		panic(errFate)
	}
	return false
}

// A patron is a Conn that is run, interrupted and run again at a gate.
type patron struct {
	*Conn
	fate  fate
	since time.Time // when it was last asked for a link
	end   context.CancelCauseFunc
	ended chan struct{} // closed when its Run has returned
}

func (p *patron) Open(ctx context.Context) (transport.Link, error) {
	p.since = time.Now()
	return p.fate.open(ctx)
}

// run runs it, unless it runs already.
func (p *patron) run() {
	select {
	case <-p.ended:
	default:
		return
	}
	ctx, end := context.WithCancelCause(context.Background())
	p.end, p.ended = end, make(chan struct{})
	go func() {
		defer close(p.ended)
		p.Run(ctx)
	}()
	synctest.Wait()
}

// begins reports whether it is at the gate or past it and not ready, waits
// there, and has been past it for less than the hold.
func (p *patron) begins(hold time.Duration) (begins, waits, recently bool) {
	status := p.Status()
	begins = p.running.Load() != nil && (status.State == Starting || status.State == Initializing)
	waits = begins && status.Reason.Kind == Queued
	return begins, waits, begins && !waits && time.Since(p.since) < hold
}

// TestNoPlaceIsLost runs Conns of all fates at one gate, stops and interrupts
// them at any time, and holds after each step that whoever begins holds a place
// or has held one for long enough, and nobody else.
//
// Guarantees: G-0027.1, G-0027.5
func TestNoPlaceIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, visitGate) })
}

func visitGate(t *rapid.T) {
	g := &Gate{Places: 2, Hold: time.Second}
	var patrons []*patron
	defer func() {
		for _, p := range patrons {
			p.Stop()
			<-p.ended
		}
		g.wantEmpty(t)
	}()
	for range 5 {
		p := &patron{fate: fate(rapid.IntRange(0, int(fates)-1).Draw(t, "fate")), ended: make(chan struct{})}
		p.Conn = New(p, Options{Gate: g, Handshake: p.fate.shake, Final: p.fate.final, InitTimeout: 3 * time.Second})
		close(p.ended)
		p.run()
		patrons = append(patrons, p)
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		p := patrons[rapid.IntRange(0, len(patrons)-1).Draw(t, "who")]
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			p.Stop()
		case 1, 2, 3:
			p.end(ErrInterrupted)
		case 4, 5, 6:
			p.run()
		default:
			pass(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
		}
		synctest.Wait()
		g.wantPatrons(t, patrons)
	}
}

// wantPatrons holds that exactly those are at the gate that should be.
func (g *Gate) wantPatrons(t *rapid.T, patrons []*patron) {
	begin, wait, recent := 0, 0, 0
	for _, p := range patrons {
		begins, waits, recently := p.begins(g.Hold)
		for count, is := range map[*int]bool{&begin: begins, &wait: waits, &recent: recently} {
			if is {
				*count++
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if held := g.held.Len(); held < recent || held > min(begin-wait, g.Places) || g.waiting.Len() != wait || wait > 0 && held < g.Places {
		t.Fatalf("%d hold a place and %d wait; %d begin, of whom %d wait and %d began lately", held, g.waiting.Len(), begin, wait, recent)
	}
}
