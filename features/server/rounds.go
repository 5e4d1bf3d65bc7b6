package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// AskingOptions limit calls that ask their client. The zero value of each field means
// its default.
type AskingOptions struct {
	// Secrets returns the secrets that encrypt the states which are stored at clients
	// between rounds. Each needs at least 32 random bytes. The first one seals new
	// states; any of them opens a state. To replace a secret while calls go on: add the
	// new one at the end on every node, then move it to the front on every node, and
	// remove the old one when Expiry has passed. New calls Secrets, and panics if there
	// is none or one is too short. Later, Secrets is called concurrently, for each state,
	// and has to return at once. If there is no valid secret then, the call fails, and
	// the log says why. Default: a random one for each process.
	Secrets func() [][]byte

	// Fleet says that the next round of a call may arrive at another node. It
	// requires Secrets. Features that use Waits also require Options.Node, and that the
	// nodes forward requests to each other (streamable.HandlerOptions.Router).
	Fleet bool

	// Spent remembers, for all nodes, which states were used. Default: the memory of
	// this node, for the latest 65,536 states.
	Spent Spent

	Expiry          time.Duration // how long a question can be answered; default 10 minutes
	CallExpiry      time.Duration // the time for a call, all rounds included; default 1 hour
	MaxRounds       int           // the maximum number of rounds of a call; default 32
	MaxWaiting      int           // how many calls may have a handler that waits, in 2026-07-28; default 1,024, which clients share: one alone has 38 %, and fewer than 64 go to whom comes first
	MaxWaitingBytes int           // the size of the requests of these calls, in bytes; default 24 MiB, a sixteenth of Options.MaxMemory, which clients share; a larger request is refused
}

// Spent remembers which states were used, so that no state is used twice.
type Spent interface {
	// Spend reports whether the state is used for the first time. The implementation
	// may forget the state after the given time. If Spend returns an error, the state
	// is rejected.
	Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error)
}

// rounds manages a server's calls that ask.
type rounds struct {
	options AskingOptions
	sealer  *asking.Sealer
	process string          // identifies this process, among those that the node has had
	ctx     context.Context // ends when the server closes
	end     context.CancelCauseFunc
	running sync.WaitGroup // counts the goroutines of handlers that wait
	places  places

	mu       sync.Mutex
	handlers map[*waiting]struct{}  // the calls whose handler runs
	tickets  map[[16]byte]*waiting  // the calls that wait for their client, by ticket
	spent    map[[16]byte]time.Time // states of Reruns and InputRequired that were used
	order    [][16]byte             // the keys of spent, oldest first
}

const (
	mostSpent      = 65_536
	bytesOfWaiting = 16 << 10 // how many bytes a waiting call counts in addition to its request
)

func (rs *rounds) init(s *Server, o AskingOptions) {
	keyring := &asking.Keyring{Secrets: o.Secrets}
	if o.Secrets == nil {
		if o.Fleet {
			panic("server: Asking: a Fleet needs Secrets")
		}
		secrets := [][]byte{make([]byte, 32)}
		_, _ = rand.Read(secrets[0]) // never fails
		keyring.Secrets = func() [][]byte { return secrets }
	}
	if err := keyring.Check(); err != nil {
		panic(fmt.Sprintf("server: Asking: Secrets: %v", err))
	}
	if o.Secrets != nil { // from now on, a broken function fails only the call
		keyring.Secrets = func() (secrets [][]byte) {
			s.guarded("Asking.Secrets", func() { secrets = o.Secrets() })
			return secrets
		}
		keyring.Report = func(err error) {
			s.log().Error("bowline: calls that ask their client fail", "error", fmt.Errorf("server: Asking: Secrets: %w", err))
		}
	}
	o.Expiry = cmp.Or(max(o.Expiry, 0), 10*time.Minute)
	o.CallExpiry = cmp.Or(max(o.CallExpiry, 0), time.Hour)
	o.MaxRounds = cmp.Or(max(o.MaxRounds, 0), 32)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), 1024)
	o.MaxWaitingBytes = cmp.Or(max(o.MaxWaitingBytes, 0), s.options.MaxMemory/16)
	rs.options, rs.process = o, rand.Text()
	rs.sealer = &asking.Sealer{Audience: s.info.Name, Node: s.options.Node, Keyring: keyring}
	rs.ctx, rs.end = context.WithCancelCause(context.Background())
	rs.places = newPlaces(o.MaxWaiting, o.MaxWaitingBytes, s.options.MaxMemory/16)
	rs.handlers = make(map[*waiting]struct{})
	rs.tickets = make(map[[16]byte]*waiting)
	rs.spent = make(map[[16]byte]time.Time)
}

// check panics if a feature asks in a way that the options do not allow.
func (rs *rounds) check(s *settings) {
	if s.asking != nil && s.asking.how == Waits && rs.options.Fleet && rs.sealer.Node == "" {
		panic("in a Fleet the next round of a call may come to any node: set Options.Node, so that it finds the handler that Waits for it")
	}
}

// bound returns a context with the time limit for one question to a legacy client.
func (rs *rounds) bound(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, expire := context.WithTimeoutCause(ctx, rs.options.Expiry, fmt.Errorf("%w: it took longer than %v", ErrUnanswered, rs.options.Expiry))
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(rs.ctx, func() { cancel(context.Cause(rs.ctx)) })
	return ctx, func(why error) {
		stop()
		cancel(why)
		expire()
	}
}

// boundCall returns a context with the time limit for a call of a legacy client.
func (rs *rounds) boundCall(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := rs.options.CallExpiry
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the call took longer than %v", ErrUnanswered, limit))
}

// spend reports whether a state is used for the first time.
func (rs *rounds) spend(ctx context.Context, st *asking.State) (bool, error) {
	id, until := [16]byte(st.ID), time.Unix(min(st.Until, st.End), 0)
	if rs.options.Spent != nil {
		return rs.options.Spent.Spend(ctx, id, until)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, used := rs.spent[id]; used {
		return false, nil
	}
	now := time.Now()
	for len(rs.order) > 0 && (len(rs.order) >= mostSpent || rs.spent[rs.order[0]].Before(now)) {
		delete(rs.spent, rs.order[0])
		rs.order = rs.order[1:]
	}
	rs.spent[id] = until
	rs.order = append(rs.order, id)
	return true, nil
}

// enter reserves a place.
func (rs *rounds) enter(w *waiting) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ctx.Err() != nil {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: shutting down")
	}
	if err := rs.places.enter(w.from, w.size); err != nil {
		return err
	}
	rs.handlers[w] = struct{}{}
	rs.running.Add(1)
	return nil
}

// release releases a place. The caller holds the mutex.
func (rs *rounds) release(w *waiting) {
	if w.over {
		return
	}
	w.over = true
	rs.unpark(w)
	rs.places.leave(w.from, w.size)
}

// unpark makes a ticket invalid. The caller holds the mutex.
func (rs *rounds) unpark(w *waiting) {
	if w.parked {
		w.parked = false
		delete(rs.tickets, w.ticket)
		w.timer.Stop()
	}
}

// stop makes all waiting questions fail, and all later ones.
func (rs *rounds) stop() {
	rs.end(fmt.Errorf("%w: %w", ErrUnanswered, ErrClosed))
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, w := range rs.tickets {
		rs.release(w)
		w.cancel(context.Cause(rs.ctx))
	}
}

// wait waits for the handlers of waiting calls, as awaitHandlers does.
func (rs *rounds) wait(ctx context.Context, grace time.Duration) []string {
	return awaitHandlers(ctx, grace, &rs.running, func() (names []string) {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		for w := range rs.handlers {
			names = append(names, w.name)
		}
		return names
	})
}

// awaitHandlers waits for handlers until the deadline of ctx, and at least for the grace.
// It returns the names of those that are still running.
func awaitHandlers(ctx context.Context, grace time.Duration, running *sync.WaitGroup, names func() []string) []string {
	over := whenDone(running)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-over:
		return nil
	case <-patience.C:
	}
	if _, bounded := ctx.Deadline(); bounded {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
		}
	}
	return slices.Sorted(slices.Values(names()))
}

// whenDone returns a channel that is closed when the group is done. Its goroutine ends then,
// perhaps long after the caller.
func whenDone(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	return done
}
