package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrStopped refuses to start a child of a supervisor that is stopping or
	// has stopped. It is also the cause of a child's context that ends because
	// the child is to stop.
	ErrStopped = errors.New("supervisor: stopped")

	// ErrGoexit is the failure of a child that called runtime.Goexit.
	ErrGoexit = errors.New("supervisor: child called runtime.Goexit")

	errOverdue = errors.New("supervisor: overdue")
)

// A DuplicateError refuses to start a child whose id belongs to one that runs.
type DuplicateError struct {
	Supervisor string // Options.Name
	ID         string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: child %q runs already", title(e.Supervisor), e.ID)
}

// A PanicError is a panic in a child's Run.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// A StuckError names the children that were asked to stop and still run.
type StuckError struct {
	Supervisor string   // Options.Name
	Children   []string // in the order of their stop; "OnEvent" is the hook
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("%s: still running after being stopped: %s", title(e.Supervisor), strings.Join(e.Children, ", "))
}

// An IntensityError is why a supervisor has given up: one restart too many.
type IntensityError struct {
	Supervisor string        // Options.Name
	Child      string        // whose restart was one too many
	Intensity  int           // how many restarts were allowed
	Period     time.Duration // within this time
	Err        error         // how that child ended last; nil if it returned without an error
}

func (e *IntensityError) Error() string {
	text := fmt.Sprintf("%s: gave up: child %q needed more than %d restarts within %s", title(e.Supervisor), e.Child, e.Intensity, e.Period)
	if e.Err == nil {
		return text
	}
	return text + ": " + e.Err.Error()
}

func (e *IntensityError) Unwrap() error { return e.Err }

// title is how errors begin.
func title(name string) string {
	if name == "" {
		return "supervisor"
	}
	return "supervisor " + name
}

// answersStop reports whether an error says only that the child was asked to
// stop. One that joins something else to that does not.
func answersStop(err error) bool {
	if errors.As(err, new(interface{ Unwrap() []error })) {
		return false
	}
	return errors.Is(err, ErrStopped) || errors.Is(err, context.Canceled)
}
