// Package process says what this process is and how it ends: its version, the exit statuses and the
// failures that lead to them, for how long it waits, where it listens, and its log.
//
// Await reads on a goroutine of its own, which may outlive the call. Nothing else here starts one.
package process

import "fmt"

// The exit statuses, as `bowline --help` explains them.
const (
	ExitToolFailed  = 1
	ExitUsage       = 2
	ExitNoSession   = 3
	ExitCallFailed  = 4
	ExitFailed      = 5
	ExitInterrupted = 130
)

// A Failure is an error with the exit status it gives the command.
type Failure struct {
	Status int
	Err    error
	Usage  bool // the command line is wrong, so show the usage
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Usage reports a command line that cannot be understood.
func Usage(err error) error {
	return &Failure{Status: ExitUsage, Err: err, Usage: true}
}

// Refuse is Usage without the usage: the command line is right, and nobody may have what it asks for.
func Refuse(format string, args ...any) error {
	return &Failure{Status: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// Lean says which command can do what this one cannot.
func Lean(flag, needs string) error {
	return Usage(fmt.Errorf("%s needs %s, which this bowline was built without; install the one that has it from a clone: go install ./cmd/bowline/full/bowline", flag, needs))
}

// An Explained has a text for people, and wraps the original error.
type Explained struct {
	message string
	err     error
}

// Explain returns an error with a text for people, which wraps the original one.
func Explain(message string, err error) error { return &Explained{message, err} }

func (e *Explained) Error() string { return e.message }

func (e *Explained) Unwrap() error { return e.err }
