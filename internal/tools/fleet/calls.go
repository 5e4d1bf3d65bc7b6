package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
)

// calls contains the numbered calls that children record: the outcome that each
// caller got, and how often a child wrote that it executed the call.
type calls struct {
	numbers atomic.Int64 // how many numbers were given so far

	mu     sync.Mutex
	all    map[int64]ledger.Call
	failed error // the error for a wrong answer, which must not happen
}

func (c *calls) report(number int64, how ledger.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[int64]ledger.Call)
	}
	call := c.all[number]
	call.Reported, call.Outcome = call.Reported+1, how
	c.all[number] = call
}

// reported returns how many calls have ended for their callers.
func (c *calls) reported() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(len(c.all))
}

func (c *calls) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// audit compares the outcomes that callers got with the files that the children
// wrote. It returns how many different calls were executed.
func (c *calls) audit(executed map[int64]int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := []error{c.failed}
	if made := c.numbers.Load(); made != int64(len(c.all)) {
		wrong = append(wrong, fmt.Errorf("%d calls were made, and the callers of %d got an outcome", made, len(c.all)))
	}
	for number, times := range executed {
		call := c.all[number]
		call.Executed = times
		c.all[number] = call
	}
	contradictions := map[string][]int64{}
	for number, call := range c.all {
		if what := call.Contradiction(1); what != "" {
			contradictions[what] = append(contradictions[what], number)
		}
	}
	for what, numbers := range contradictions {
		wrong = append(wrong, fmt.Errorf("of %d calls, for instance call %d: %s", len(numbers), numbers[0], what))
	}
	return len(executed), errors.Join(wrong...)
}

// readExecuted counts how often each call was executed, as the children wrote.
func readExecuted(path string) (map[int64]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return countLines(file)
}

func countLines(from io.Reader) (map[int64]int, error) {
	executed := make(map[int64]int)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		number, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading what was executed: %w", err)
		}
		executed[number]++
	}
	return executed, lines.Err()
}

// call makes one call of the recording tool, and records its outcome.
func (s *soak) call(ctx context.Context, session *client.Session, what recording) error {
	what.Call = s.calls.numbers.Add(1)
	arguments, err := json.Marshal(what)
	if err != nil {
		return err
	}
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: record, Arguments: arguments})
	s.calls.report(what.Call, s.ledger.Report(err))
	if err == nil && (result.IsError || result.Content.Text() != what.answer()) {
		err = fmt.Errorf("call %d was answered %q", what.Call, result.Content.Text())
		s.calls.fail(err)
	}
	return err
}

// callUntil makes calls of all kinds until stop is closed. Some take time
// before or after the child records them. Some are cancelled. Some wait for a
// server, and are repeated if they were certainly not executed.
func (s *soak) callUntil(ctx context.Context, stop <-chan struct{}, c *child, random *rand.Rand) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		s.callOnce(ctx, c, random)
		if wait.Sleep(ctx, time.Duration(2*random.Float64()*float64(s.options.pause))) != nil {
			return
		}
	}
}

const (
	longest = 40 * time.Millisecond // the maximum time that a call takes before it is recorded, and again afterwards
	retries = 3
)

func (s *soak) callOnce(ctx context.Context, c *child, random *rand.Rand) {
	what := recording{Before: drawMilliseconds(random), After: drawMilliseconds(random)}
	var options client.CallOptions
	switch random.IntN(8) {
	case 0:
		options.Timeout = longest // about half of them take longer
	case 1:
		cancelling, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(longest, cancel).Stop()
		ctx = cancelling
	case 2, 3, 4:
		options.WaitForReady, options.Retries = true, retries
	}
	_ = s.call(ctx, c.session.With(options), what) // the ledger has recorded how it ended
}

func drawMilliseconds(random *rand.Rand) int { return random.IntN(int(longest/time.Millisecond) + 1) }
