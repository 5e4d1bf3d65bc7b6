package conn

import "runtime/debug"

// guard runs code that was handed in, and turns its panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// isFinal asks Options.Final. One that panics has called nothing final.
func (l *loop) isFinal(why Reason) (final bool) {
	l.reportPanic("Options.Final", guard(func() error { final = l.conn.options.Final(why); return nil }))
	return final
}
