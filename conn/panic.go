package conn

import (
	"errors"
	"runtime/debug"

	"github.com/bowline-mcp/bowline/telemetry"
)

// guard runs code that was handed in, and turns its panic into an error. What it
// returns is asked a lot from here on: should the methods of that panic, as those
// of a nil pointer do, that is the error.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	if err = f(); err != nil {
		_ = err.Error()
		errors.As(err, new(*PanicError)) // calls Is, As and Unwrap of all it wraps
		errors.Is(err, errExited)
	}
	return err
}

// askable is an error that somebody else than a guarded function has given.
func askable(err error) error {
	if err == nil {
		return nil
	}
	return guard(func() error { return err })
}

// attend tells how guarded work has ended, also when that was by the end of its
// goroutine.
func attend(work func() error, tell func(error)) {
	returned := false
	var err error
	defer func() {
		if !returned {
			err = exited()
		}
		tell(err)
	}()
	err = guard(work)
	returned = true
}

// exited is the error of a function that has ended its goroutine.
func exited() error { return &PanicError{Value: errExited, Stack: debug.Stack()} }

// errExited is what has become of code that has ended its goroutine, as t.FailNow
// does.
var errExited = errors.New("runtime.Goexit was called")

// reportPanic tells the hooks of a panic in code that was handed in.
func (c *Conn) reportPanic(where string, err error) {
	if told, ok := c.panicked(where, err); ok && c.options.Hooks.Panic != nil {
		c.tell(func() { c.options.Hooks.Panic(told) })
	}
}

// reportPanic is that of the Conn, off the goroutine that panicked.
func (l *loop) reportPanic(where string, err error) {
	if told, ok := l.conn.panicked(where, err); ok {
		tell(l, l.conn.options.Hooks.Panic, told)
	}
}

// isFinal asks Options.Final. One that panics has called nothing final.
func (l *loop) isFinal(why Reason) (final bool) {
	l.reportPanic("Options.Final", guard(func() error { final = l.conn.options.Final(why); return nil }))
	return final
}

// panicked is what is told of a panic, if the error is one.
func (c *Conn) panicked(where string, err error) (told telemetry.Panic, ok bool) {
	panicked, ok := err.(*PanicError)
	if !ok {
		return told, false
	}
	return telemetry.Panic{Conn: c.options.Name, Where: where, Value: panicked.Value, Stack: panicked.Stack}, true
}
