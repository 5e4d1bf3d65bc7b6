package process

import (
	"context"
	"time"
)

// Await returns what read returns, or the cause of the context once that ends.
// The goroutine of read then continues until the process ends, because reading
// a terminal, a pipe or a FIFO cannot be interrupted.
func Await[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		value, err := read()
		ended <- outcome{value, err}
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

// EndGrace is how long a server has to end after its input was closed.
const EndGrace = 2 * time.Second

// FinishGrace is how long a server finishes what it was asked.
const FinishGrace = 5 * time.Second
