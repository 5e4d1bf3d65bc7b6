package registry

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed refuses to register a Conn that is closed for good.
	ErrClosed = errors.New("registry: the Conn is closed for good")

	errBroken = errors.New("registry: the store has panicked")
	errEnded  = errors.New("registry: the store has stopped telling, and does not say why")
)

// A TakenError refuses a name that somebody has.
type TakenError struct {
	Name   string
	Holder string // Options.Holder of the Registry that has it
}

func (e *TakenError) Error() string {
	if e.Holder == thisProcess {
		return fmt.Sprintf("registry: name %q is taken, by another Conn of this process", e.Name)
	}
	return fmt.Sprintf("registry: name %q is taken, by %q", e.Name, e.Holder)
}

// A LostError is why a Conn has lost its name: the Store does not hold it for
// this process any more.
type LostError struct {
	Name string
	Err  error // what the Store says; may be nil
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("registry: name %q is lost", e.Name)
	if e.Err == nil {
		return text
	}
	return text + ": " + e.Err.Error()
}

func (e *LostError) Unwrap() error { return e.Err }
