package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

var (
	// ErrStopped says that the supervisor is stopping or has stopped, so that no
	// child can start. It is also the cause with which the context of a child ends
	// that must stop, or with which its Conn is cancelled. If the supervisor has
	// given up, errors.As finds the *IntensityError as well.
	ErrStopped = errors.New("supervisor: stopped")

	// ErrRestarted is this cause for a child that must stop and then runs again:
	// because its strategy says so, because a supervisor above is restarted, or
	// because of Child.Restart. It wraps conn.ErrInterrupted, so that a Conn is
	// interrupted and not closed.
	ErrRestarted = fmt.Errorf("supervisor: restarted: %w", conn.ErrInterrupted)

	// ErrFinal is returned by Child.Restart for a Conn that has closed for good.
	ErrFinal = errors.New("supervisor: child cannot run again")

	// ErrNested is returned when a supervisor cannot become a child: it is the
	// child of another supervisor already, or would contain itself.
	ErrNested = errors.New("supervisor: cannot become a child")

	// errStopping is returned by Child.Restart while the child is being stopped.
	errStopping = new(stoppedError)
)

// A DuplicateError says that the ID of a new child belongs to a child that has
// not terminated.
type DuplicateError struct {
	Supervisor string // Options.Name
	ID         string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: child id %q is in use", title(e.Supervisor), e.ID)
}

// A PanicError is a panic in a child's Init, Run or Drain.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// MarshalText returns the text of Error, so JSON contains that.
func (e *PanicError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// A StuckError names the children that were told to stop and still run.
type StuckError struct {
	Supervisor string   // Options.Name
	Children   []string // IDs in the order of the stop; "OnEvent" stands for Options.OnEvent
}

func (e *StuckError) Error() string {
	var names []string
	for _, name := range e.Children {
		names = append(names, plain(name))
	}
	return fmt.Sprintf("%s: still running after being stopped: %s", title(e.Supervisor), strings.Join(names, ", "))
}

// An IntensityError says that a supervisor has given up because its children
// failed too often.
type IntensityError struct {
	Supervisor string        // Options.Name
	Child      string        // ID of the child whose restart was one too many
	Intensity  int           // how many restarts were allowed
	Period     time.Duration // within this time
	Err        error         // how that child failed; nil if it returned without an error
}

func (e *IntensityError) Error() string {
	text := fmt.Sprintf("%s: gave up: child %q needed more than %d restarts within %s", title(e.Supervisor), e.Child, e.Intensity, e.Period)
	if e.Err == nil {
		return text
	}
	return text + ": " + e.Err.Error()
}

func (e *IntensityError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *IntensityError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// A stoppedError is ErrStopped with its reason: the supervisor has given up, or,
// if gaveUp is nil, the child is being stopped.
type stoppedError struct{ gaveUp *IntensityError }

func (e *stoppedError) Error() string {
	if e.gaveUp == nil {
		return "the child is stopping; it can be restarted when its Done is closed"
	}
	return fmt.Sprintf("%v: %v", ErrStopped, e.gaveUp)
}

func (e *stoppedError) Unwrap() error { return ErrStopped }

// As finds the IntensityError. Unwrap does not lead to it: a child that returns
// the cause of its context has not failed with the error of the child that the
// supervisor gave up on.
func (e *stoppedError) As(target any) bool {
	gaveUp, ok := target.(**IntensityError)
	if ok = ok && e.gaveUp != nil; ok {
		*gaveUp = e.gaveUp
	}
	return ok
}

// stopped returns ErrStopped with its reason. The caller holds the mutex.
func (s *Supervisor) stopped() error {
	if gaveUp := s.lifetime.gaveUp; gaveUp != nil {
		return &stoppedError{gaveUp}
	}
	return ErrStopped
}

// title returns the beginning of every error text.
func title(name string) string {
	if name == "" {
		return "supervisor"
	}
	return "supervisor " + plain(name)
}

// answersStop reports whether an error says only that the child was told to stop. It
// returns false for an error that joins another error with that.
func answersStop(err error) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return errors.Is(err, ErrStopped) || errors.Is(err, context.Canceled) || errors.Is(err, conn.ErrInterrupted)
	}
	for _, part := range joined.Unwrap() {
		if !answersStop(part) {
			return false
		}
	}
	return true
}
