package telemetry

import (
	"slices"
	"time"
)

// Hooks are functions to be told what happens; any of them may be nil.
//
// Transition, LateReply, UnknownReply, Violation and Shed run one at a time,
// in the order of what they tell, off the connection's own goroutine: a slow
// hook delays other hooks, never the connection. At most 1,024 such events
// wait; what does not fit is dropped and counted in Dropped.
// RequestStopped runs on the goroutine of the caller whose request ended.
type Hooks struct {
	Transition     func(Transition)
	RequestStopped func(RequestStopped)
	LateReply      func(Reply)     // an answer to a request that had ended
	UnknownReply   func(Reply)     // an answer to a request never made
	Violation      func(Violation) // the peer broke a rule; nothing was lost
	Shed           func(Shed)      // a notification was dropped for want of room
	Panic          func(Panic)     // code that was handed in panicked; on the goroutine it ran on
}

// A Transition is a change of state.
type Transition struct {
	Conn        string
	Epoch       uint64 // the incarnation it belongs to
	From, To    string
	Kind        string    // the reason, as a name to count by
	Reason      error     // the reason in full
	At          time.Time // when it happened
	NextAttempt time.Time // entering backoff: when the next attempt is due
	Dropped     uint64    // events dropped so far because hooks were slow
}

// RequestStopped is the end of a request.
type RequestStopped struct {
	Conn     string
	Method   string
	ID       int64
	Cause    string
	Delivery string
	Duration time.Duration // on the monotonic clock
	Err      error         // nil when it was answered
}

// A Reply is an answer nobody waits for.
type Reply struct {
	Conn  string
	Epoch uint64
	ID    int64 // 0 when it is no id of ours
}

// A Violation is a message that breaks the protocol's rules.
type Violation struct {
	Conn  string
	Epoch uint64
	Err   error
}

// Shed is a notification dropped for want of room.
type Shed struct {
	Conn   string
	Method string
}

// Panic is a panic in code that was handed in. The connection lives on.
type Panic struct {
	Conn  string
	Where string // the method being served, or what else ran, such as "Dialect.Classify"
	Value any
	Stack []byte
}

// WithDefaults returns hooks none of which is nil.
func (h Hooks) WithDefaults() Hooks {
	setDefault(&h.Transition)
	setDefault(&h.RequestStopped)
	setDefault(&h.LateReply)
	setDefault(&h.UnknownReply)
	setDefault(&h.Violation)
	setDefault(&h.Shed)
	setDefault(&h.Panic)
	return h
}

func setDefault[E any](hook *func(E)) {
	if *hook == nil {
		*hook = func(E) {}
	}
}

// Tee returns hooks that tell each of the given ones, in order.
func Tee(hooks ...Hooks) Hooks {
	hooks = slices.Clone(hooks)
	for i := range hooks {
		hooks[i] = hooks[i].WithDefaults()
	}
	return Hooks{
		Transition:     tee(hooks, func(h Hooks) func(Transition) { return h.Transition }),
		RequestStopped: tee(hooks, func(h Hooks) func(RequestStopped) { return h.RequestStopped }),
		LateReply:      tee(hooks, func(h Hooks) func(Reply) { return h.LateReply }),
		UnknownReply:   tee(hooks, func(h Hooks) func(Reply) { return h.UnknownReply }),
		Violation:      tee(hooks, func(h Hooks) func(Violation) { return h.Violation }),
		Shed:           tee(hooks, func(h Hooks) func(Shed) { return h.Shed }),
		Panic:          tee(hooks, func(h Hooks) func(Panic) { return h.Panic }),
	}
}

func tee[E any](hooks []Hooks, of func(Hooks) func(E)) func(E) {
	return func(event E) {
		for _, h := range hooks {
			of(h)(event)
		}
	}
}
