package telemetry

import (
	"context"
	"slices"
)

// Hooks are functions to be told what happens; any of them may be nil. None
// can end or hold up a connection: what panics has missed its event, and what
// is slow delays as said here.
//
// RequestStarted, Retried and RequestStopped run on the goroutine of the caller
// whose request it is, which waits for them. Panic runs on the goroutine of the
// handler, of the caller whose MessageFor it was, or of what Conn.Go runs; any
// other panic is told with the others. All others run one at a time, in the order
// of what they tell, off the connection's own goroutine: a slow one delays those
// behind it. At most 1,024 events wait for them; what does not fit is dropped and
// counted, see Transition.Dropped.
//
// A hook may look at the connection, and must not wait for it: a call made by
// one would wait behind it. What an event points to must not be changed.
// Durations are measured on the monotonic clock.
type Hooks struct {
	// RequestStarted returns the context that the hooks of this call are given
	// from here on, so that a tracer finds its span there. It is ctx or derived
	// from it; nil means ctx. The call itself goes on with the caller's.
	RequestStarted func(ctx context.Context, e RequestStarted) context.Context
	Retried        func(ctx context.Context, e Retried)
	RequestStopped func(ctx context.Context, e RequestStopped)

	Transition           func(Transition)
	Gap                  func(Gap) // ready again after a loss
	NotificationReceived func(NotificationReceived)
	Shed                 func(Shed)
	Stalled              func(Stalled)
	BusyRetry            func(BusyRetry)
	Missed               func(Missed)
	LateReply            func(Reply)     // an answer to a request that had ended
	UnknownReply         func(Reply)     // an answer to a request never made
	Violation            func(Violation) // the peer broke a rule; nothing was lost

	Panic func(Panic)
}

// Tee returns hooks that tell each of the given ones, in order. A hook that
// none of them has is nil; one that panics takes nothing from the others. What one RequestStarted returns is given to the
// next, so that each finds what it has put there.
func Tee(hooks ...Hooks) Hooks {
	return Hooks{
		RequestStarted:       teeStarted(hooks),
		Retried:              teeWithin(hooks, func(h Hooks) func(context.Context, Retried) { return h.Retried }),
		RequestStopped:       teeWithin(hooks, func(h Hooks) func(context.Context, RequestStopped) { return h.RequestStopped }),
		Transition:           tee(hooks, func(h Hooks) func(Transition) { return h.Transition }),
		Gap:                  tee(hooks, func(h Hooks) func(Gap) { return h.Gap }),
		NotificationReceived: tee(hooks, func(h Hooks) func(NotificationReceived) { return h.NotificationReceived }),
		Shed:                 tee(hooks, func(h Hooks) func(Shed) { return h.Shed }),
		Stalled:              tee(hooks, func(h Hooks) func(Stalled) { return h.Stalled }),
		BusyRetry:            tee(hooks, func(h Hooks) func(BusyRetry) { return h.BusyRetry }),
		Missed:               tee(hooks, func(h Hooks) func(Missed) { return h.Missed }),
		LateReply:            tee(hooks, func(h Hooks) func(Reply) { return h.LateReply }),
		UnknownReply:         tee(hooks, func(h Hooks) func(Reply) { return h.UnknownReply }),
		Violation:            tee(hooks, func(h Hooks) func(Violation) { return h.Violation }),
		Panic:                tee(hooks, func(h Hooks) func(Panic) { return h.Panic }),
	}
}

func tee[E any](hooks []Hooks, of func(Hooks) func(E)) func(E) {
	given := given(hooks, of, func(f func(E)) bool { return f != nil })
	if len(given) == 0 {
		return nil
	}
	return func(e E) { tellAll(given, func(tell func(E)) { tell(e) }) }
}

// tellAll tells each, also those behind one that panics.
func tellAll[F any](hooks []F, tell func(F)) {
	if len(hooks) == 0 {
		return
	}
	defer tellAll(hooks[1:], tell)
	tell(hooks[0])
}

func teeWithin[E any](hooks []Hooks, of func(Hooks) func(context.Context, E)) func(context.Context, E) {
	given := given(hooks, of, func(f func(context.Context, E)) bool { return f != nil })
	if len(given) == 0 {
		return nil
	}
	return func(ctx context.Context, e E) {
		tellAll(given, func(tell func(context.Context, E)) { tell(ctx, e) })
	}
}

func teeStarted(hooks []Hooks) func(context.Context, RequestStarted) context.Context {
	type starting = func(context.Context, RequestStarted) context.Context
	given := given(hooks, func(h Hooks) starting { return h.RequestStarted }, func(f starting) bool { return f != nil })
	if len(given) == 0 {
		return nil
	}
	return func(ctx context.Context, e RequestStarted) context.Context {
		for _, tell := range given {
			ctx = start(ctx, tell, e)
		}
		return ctx
	}
}

// start is what one hook makes of a context. One that panics makes nothing of
// it, and takes nothing from the others.
func start(ctx context.Context, tell func(context.Context, RequestStarted) context.Context, e RequestStarted) (derived context.Context) {
	defer func() {
		if recover() != nil || derived == nil {
			derived = ctx
		}
	}()
	return tell(ctx, e)
}

// given are those of one kind of hook that are there.
func given[F any](hooks []Hooks, of func(Hooks) F, there func(F) bool) []F {
	all := make([]F, len(hooks))
	for i, h := range hooks {
		all[i] = of(h)
	}
	return slices.DeleteFunc(all, func(f F) bool { return !there(f) })
}
