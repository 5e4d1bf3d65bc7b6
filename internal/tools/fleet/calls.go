package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
)

// calls contains the numbered calls that children record: the outcome that each
// caller got, and how often a child wrote that it executed the call.
type calls struct {
	numbers atomic.Int64 // how many numbers were given so far

	mu     sync.Mutex
	all    map[string]ledger.Call
	failed error // the error for a wrong answer, which must not happen
}

func (c *calls) report(id string, how ledger.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string]ledger.Call)
	}
	call := c.all[id]
	call.Reported, call.Outcome = call.Reported+1, how
	c.all[id] = call
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
func (c *calls) audit(executed map[string]int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := []error{c.failed}
	if made := c.numbers.Load(); made != int64(len(c.all)) {
		wrong = append(wrong, fmt.Errorf("%d calls were made, and the callers of %d got an outcome", made, len(c.all)))
	}
	for id, times := range executed {
		call := c.all[id]
		call.Executed = times
		c.all[id] = call
	}
	contradictions := map[string][]string{}
	for id, call := range c.all {
		if what := call.Contradiction(1); what != "" {
			contradictions[what] = append(contradictions[what], id)
		}
	}
	for what, ids := range contradictions {
		wrong = append(wrong, fmt.Errorf("of %d calls, for instance call %s: %s", len(ids), ids[0], what))
	}
	return len(executed), errors.Join(wrong...)
}

// call makes one call of the tool of a child, and records its outcome.
func (s *soak) call(ctx context.Context, session *client.Session, what marks.Arguments) error {
	what.ID = strconv.FormatInt(s.calls.numbers.Add(1), 10)
	arguments, err := json.Marshal(what)
	if err != nil {
		return err
	}
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: marks.Tool, Arguments: arguments})
	s.calls.report(what.ID, s.ledger.Report(err))
	if err == nil && (result.IsError || result.Content.Text() != what.ID) {
		err = fmt.Errorf("call %s was answered %q", what.ID, result.Content.Text())
		s.calls.fail(err)
	}
	return err
}

// startCallers calls all children. Some calls take time before or after the child records them. Some are
// cancelled. Some wait for a server, and are repeated if they were certainly not executed.
func (s *soak) startCallers(ctx context.Context) *fleet.Load {
	randoms := make([]*rand.Rand, len(s.Members)*s.options.callers)
	for i := range randoms {
		randoms[i] = rand.New(rand.NewPCG(s.seed, uint64(i+1)))
	}
	return fleet.StartLoad(len(randoms), func(caller int) bool {
		random := randoms[caller]
		s.callOnce(ctx, s.Members[caller/s.options.callers], random)
		return wait.Sleep(ctx, time.Duration(2*random.Float64()*float64(s.options.pause))) == nil
	})
}

const (
	longest = 40 * time.Millisecond // the maximum time that a call takes before it is recorded, and again afterwards
	retries = 3
)

func (s *soak) callOnce(ctx context.Context, c *child, random *rand.Rand) {
	what := marks.Arguments{Before: drawMilliseconds(random), Wait: drawMilliseconds(random)}
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
	_ = s.call(ctx, c.Session.With(options), what) // the ledger has recorded how it ended
}

func drawMilliseconds(random *rand.Rand) int { return random.IntN(int(longest/time.Millisecond) + 1) }
