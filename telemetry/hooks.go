// Package telemetry reports what happens on a connection, as typed values: calls,
// retries, losses, reconnections, dropped notifications and panics.
//
//	o := client.Options{Conn: conn.Tuning{Hooks: telemetry.Hooks{
//		Transition: func(e telemetry.Transition) { log.Print(e.Conn, " is ", e.To) },
//	}}}
//
// Pass Hooks to a connection as conn.Tuning.Hooks, or to a client or server as
// Options.Conn.Hooks. Tee combines several Hooks.
//
// The subpackages turn events into logs (sloglog, zaplog), and into traces and metrics
// (otel). This package itself depends only on the standard library, so that you compile
// only the libraries that you use.
package telemetry

import (
	"context"
	"slices"
)

// Hooks are functions that a connection calls when something happens. Any of
// them may be nil. If a hook panics, only the event of that call is lost; the
// connection continues.
//
// RequestStarted, Retried and RequestStopped run on the goroutine of the caller
// that made the request, and delay that caller. ServeStopped runs on the goroutine of
// the handler, and delays its answer. Panic runs on the goroutine of the
// handler, of the caller whose MessageFor panicked, of the function passed to Control.Go,
// or of a server's Audit; after any other panic it runs like the remaining hooks.
//
// The remaining hooks run one at a time, in the order of the events, on a
// goroutine beside the connection. A slow hook delays those after it. Up to 1,024
// events wait; further events are dropped and counted in Transition.Dropped.
//
// A hook may read the state of the connection. It must not make a call, because
// the call would wait for the hook. It must not change what an event points to.
// Durations are measured on the monotonic clock.
type Hooks struct {
	// RequestStarted returns the context that the later hooks of this call
	// receive, so that a tracer finds its span there. Return ctx, a context
	// derived from it, or nil for ctx. The call itself keeps the caller's context.
	RequestStarted func(ctx context.Context, e RequestStarted) context.Context
	Retried        func(ctx context.Context, e Retried)
	RequestStopped func(ctx context.Context, e RequestStopped)

	ServeStopped func(ctx context.Context, e ServeStopped) // ctx is the context of the handler

	Transition           func(Transition)
	Gap                  func(Gap)
	NotificationReceived func(NotificationReceived)
	Shed                 func(Shed)
	Stalled              func(Stalled)
	BusyRetry            func(BusyRetry)
	Missed               func(Missed)
	Stuck                func(Stuck)
	LateReply            func(Reply)     // a reply to a request that has ended
	UnknownReply         func(Reply)     // a reply to a request that was never sent
	Violation            func(Violation) // a message from the peer breaks the protocol; the connection continues
	Panic                func(Panic)
}

// Tee returns Hooks that call all of the given Hooks, in order. A hook that none of them
// sets is nil. If one hook panics, the others are still called. The context that one
// RequestStarted returns is passed to the next.
func Tee(hooks ...Hooks) Hooks {
	return Hooks{
		RequestStarted:       teeStarted(hooks),
		Retried:              teeWithin(hooks, func(h Hooks) func(context.Context, Retried) { return h.Retried }),
		RequestStopped:       teeWithin(hooks, func(h Hooks) func(context.Context, RequestStopped) { return h.RequestStopped }),
		ServeStopped:         teeWithin(hooks, func(h Hooks) func(context.Context, ServeStopped) { return h.ServeStopped }),
		Transition:           tee(hooks, func(h Hooks) func(Transition) { return h.Transition }),
		Gap:                  tee(hooks, func(h Hooks) func(Gap) { return h.Gap }),
		NotificationReceived: tee(hooks, func(h Hooks) func(NotificationReceived) { return h.NotificationReceived }),
		Shed:                 tee(hooks, func(h Hooks) func(Shed) { return h.Shed }),
		Stalled:              tee(hooks, func(h Hooks) func(Stalled) { return h.Stalled }),
		BusyRetry:            tee(hooks, func(h Hooks) func(BusyRetry) { return h.BusyRetry }),
		Missed:               tee(hooks, func(h Hooks) func(Missed) { return h.Missed }),
		Stuck:                tee(hooks, func(h Hooks) func(Stuck) { return h.Stuck }),
		LateReply:            tee(hooks, func(h Hooks) func(Reply) { return h.LateReply }),
		UnknownReply:         tee(hooks, func(h Hooks) func(Reply) { return h.UnknownReply }),
		Violation:            tee(hooks, func(h Hooks) func(Violation) { return h.Violation }),
		Panic:                tee(hooks, func(h Hooks) func(Panic) { return h.Panic }),
	}
}

func tee[E any](hooks []Hooks, of func(Hooks) func(E)) func(E) {
	given := given(hooks, of, func(f func(E)) bool { return f != nil })
	switch len(given) {
	case 0:
		return nil
	case 1:
		return given[0]
	}
	return func(e E) { callAll(given, func(hook func(E)) { hook(e) }) }
}

func teeWithin[E any](hooks []Hooks, of func(Hooks) func(context.Context, E)) func(context.Context, E) {
	given := given(hooks, of, func(f func(context.Context, E)) bool { return f != nil })
	switch len(given) {
	case 0:
		return nil
	case 1:
		return given[0]
	}
	return func(ctx context.Context, e E) {
		callAll(given, func(hook func(context.Context, E)) { hook(ctx, e) })
	}
}

// callAll calls every hook, also those after one that panics. The panic goes on
// to the connection, which recovers it.
func callAll[F any](hooks []F, call func(F)) {
	if len(hooks) == 0 {
		return
	}
	defer callAll(hooks[1:], call)
	call(hooks[0])
}

func teeStarted(hooks []Hooks) func(context.Context, RequestStarted) context.Context {
	type starting = func(context.Context, RequestStarted) context.Context
	given := given(hooks, func(h Hooks) starting { return h.RequestStarted }, func(f starting) bool { return f != nil })
	if len(given) == 0 {
		return nil
	}
	return func(ctx context.Context, e RequestStarted) context.Context {
		for _, hook := range given {
			ctx = start(ctx, hook, e)
		}
		return ctx
	}
}

// start returns the context that the hook derives from ctx, or ctx if it panics or
// returns nil.
func start(ctx context.Context, hook func(context.Context, RequestStarted) context.Context, e RequestStarted) (derived context.Context) {
	defer func() {
		if recover() != nil || derived == nil {
			derived = ctx
		}
	}()
	return hook(ctx, e)
}

// given returns the hooks of one kind that are not nil.
func given[F any](hooks []Hooks, of func(Hooks) F, isSet func(F) bool) []F {
	all := make([]F, len(hooks))
	for i, h := range hooks {
		all[i] = of(h)
	}
	return slices.DeleteFunc(all, func(f F) bool { return !isSet(f) })
}
