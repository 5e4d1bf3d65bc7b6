package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// A ledger is what callers were told, call by call.
type ledger struct {
	numbers atomic.Int64 // given to calls

	mu     sync.Mutex
	told   map[int64]account
	failed error // the tool's own failures, of which there are none
}

func (l *ledger) enter(number int64, how account) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = make(map[int64]account)
	}
	if before, again := l.told[number]; again {
		return fmt.Errorf("call %d was told %v, and then %v", number, before, how)
	}
	l.told[number] = how
	return nil
}

// call makes one call of the recording tool, and enters how it ended. A result
// is the call's own, or it is an error of another kind.
func (s *soak) call(ctx context.Context, session *client.Session, what recording) error {
	what.Call = s.ledger.numbers.Add(1)
	arguments, err := json.Marshal(what)
	if err != nil {
		return err
	}
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: record, Arguments: arguments})
	wrong := s.ledger.enter(what.Call, s.books.enter(err))
	if err == nil && (result.IsError || result.Content.Text() != what.answer()) {
		wrong = errors.Join(wrong, fmt.Errorf("call %d was answered %q", what.Call, result.Content.Text()))
	}
	if wrong != nil {
		s.ledger.mu.Lock()
		s.ledger.failed = wrong
		s.ledger.mu.Unlock()
	}
	return errors.Join(err, wrong)
}

// callUntil makes calls of all sorts: of which some take their time, before or
// after what they do, some are given up, and some wait for a server and are made
// again if they surely were not executed.
func (s *soak) callUntil(ctx context.Context, enough <-chan struct{}, c *child, random *rand.Rand) {
	for {
		select {
		case <-enough:
			return
		default:
		}
		s.callOnce(ctx, c, random)
		if pause(ctx, time.Duration(2*random.Float64()*float64(s.options.pause))) != nil {
			return
		}
	}
}

const (
	longest = 40 * time.Millisecond // that a call takes before, and again after what it does
	retries = 3
)

func (s *soak) callOnce(ctx context.Context, c *child, random *rand.Rand) {
	what := recording{Before: drawMilliseconds(random), After: drawMilliseconds(random)}
	var options client.CallOptions
	switch random.IntN(8) {
	case 0:
		options.Timeout = longest // about half of them take longer
	case 1:
		leaving, leave := context.WithCancel(ctx)
		defer leave()
		defer time.AfterFunc(longest, leave).Stop()
		ctx = leaving
	case 2, 3, 4:
		options.WaitForReady, options.Retries = true, retries
	}
	_ = s.call(ctx, c.session.With(options), what) // it is entered
}

func drawMilliseconds(random *rand.Rand) int { return random.IntN(int(longest/time.Millisecond) + 1) }
