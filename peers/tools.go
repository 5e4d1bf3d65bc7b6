package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"
)

// The servers of this package offer four tools on pages of pageSize: echo, slow
// and fail, as `bowline serve` has them, and grow, which adds the tool grown.
const (
	pageSize = 2
	grown    = "grown"
)

type nothing struct{}

type message struct {
	Message string `json:"message"`
}

type duration struct {
	Seconds float64 `json:"seconds"`
	Steps   int     `json:"steps"`
}

// slowly waits for d, reports each step, and writes to standard error when its
// call is cancelled.
func slowly(ctx context.Context, d duration, tell func(step int) error) error {
	if d.Steps < 1 {
		return errors.New("slow takes at least one step")
	}
	err := d.takeSteps(ctx, tell)
	if ctx.Err() != nil {
		fmt.Fprintf(os.Stderr, "slow: %s: %v\n", cancelledLine, err)
	}
	return err
}

func (d duration) takeSteps(ctx context.Context, tell func(step int) error) error {
	ticker := time.NewTicker(time.Duration(d.Seconds * float64(time.Second) / float64(d.Steps)))
	defer ticker.Stop()
	for step := range d.Steps {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := tell(step + 1); err != nil {
			return err
		}
	}
	return nil
}

// cancelledLine is what each server logs when it receives a cancellation.
const cancelledLine = "given up"

var cancelledPattern = regexp.MustCompile(cancelledLine)
