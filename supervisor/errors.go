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
	// ErrStopped refuses to start a child of a supervisor that is stopping or
	// has stopped. It is also the cause of a child's context that ends because
	// the child is to stop. Where the supervisor has given up, the error is an
	// *IntensityError as well, to errors.As.
	ErrStopped = errors.New("supervisor: stopped")

	// ErrRestarted is the cause of a child's context that ends because the child
	// is to run again: its strategy says so, or a supervisor above is restarted,
	// or somebody called Child.Restart. A Conn is interrupted by it, not closed.
	ErrRestarted = fmt.Errorf("supervisor: restarted: %w", conn.ErrInterrupted)

	// ErrFinal refuses to restart a Conn that has closed for good.
	ErrFinal = errors.New("supervisor: child cannot run again")

	// ErrNested refuses to make a supervisor the child of another: it is one
	// already, or that would be a circle.
	ErrNested = errors.New("supervisor: it cannot be a child here")

	// errStopping refuses to restart a child until it is over.
	errStopping = new(stoppedError)

	// ErrGoexit is the failure of a child that called runtime.Goexit.
	ErrGoexit = errors.New("supervisor: child called runtime.Goexit")
)

// A DuplicateError refuses to start a child whose id belongs to one that is
// not over.
type DuplicateError struct {
	Supervisor string // Options.Name
	ID         string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: there is a child %q already, which is not over", title(e.Supervisor), e.ID)
}

// A PanicError is a panic in a child's Init, Run or Drain.
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
	var names []string
	for _, name := range e.Children {
		names = append(names, plain(name))
	}
	return fmt.Sprintf("%s: still running after being stopped: %s", title(e.Supervisor), strings.Join(names, ", "))
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

// A stoppedError is ErrStopped with more to say: of the supervisor, that it has
// given up, and else of the child.
type stoppedError struct{ gaveUp *IntensityError }

func (e *stoppedError) Error() string {
	if e.gaveUp == nil {
		return "the child is being stopped, and can be restarted once its Done is closed"
	}
	return fmt.Sprintf("%v: %v", ErrStopped, e.gaveUp)
}

func (e *stoppedError) Unwrap() error { return ErrStopped }

// As finds why. It is not unwrapped to, since who answers a stop with this
// error has not failed like the child that was restarted too often.
func (e *stoppedError) As(target any) bool {
	why, ok := target.(**IntensityError)
	if ok = ok && e.gaveUp != nil; ok {
		*why = e.gaveUp
	}
	return ok
}

// stopped is ErrStopped, and why. The mutex is held.
func (s *Supervisor) stopped() error {
	if gaveUp := s.life.gaveUp; gaveUp != nil {
		return &stoppedError{gaveUp}
	}
	return ErrStopped
}

// title is how errors begin.
func title(name string) string {
	if name == "" {
		return "supervisor"
	}
	return "supervisor " + plain(name)
}

// answersStop reports whether an error says only that the child was asked to
// stop. One that joins something else to that does not.
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
