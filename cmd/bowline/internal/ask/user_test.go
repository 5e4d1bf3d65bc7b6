package ask

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPatienceStandsStillWhileTheUserIsAsked checks that the time for answers does not count
// for --timeout.
func TestPatienceStandsStillWhileTheUserIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(strings.NewReader(""), io.Discard)
		began := time.Now()
		ctx, cancel := u.Limit.Bound(t.Context(), time.Minute)
		defer cancel()
		<-time.NewTimer(20 * time.Second).C
		end, err := u.begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(time.Hour).C
		end()
		<-ctx.Done()
		if took := time.Since(began); took != time.Hour+time.Minute {
			t.Errorf("the run has ended after %v", took)
		}
		if cause := context.Cause(ctx).Error(); cause != "no answer within --timeout 1m0s" {
			t.Errorf("the cause is %s", cause)
		}
	})
}

// TestCallTimeoutWithoutALimit checks that --timeout 0 sets no limit, also after a question.
func TestCallTimeoutWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Timeout
		ctx, cancel := p.Bound(t.Context(), 0)
		p.pause()
		p.Resume()
		<-time.NewTimer(1000 * time.Hour).C
		if ctx.Err() != nil {
			t.Errorf("the context has ended: %v", context.Cause(ctx))
		}
		cancel()
	})
}

// TestALateLineAnswersNothing checks that a line typed after a cancelled question does not
// answer the next one.
func TestALateLineAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, keyboard := io.Pipe()
		u := New(in, io.Discard)
		ctx, drop := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			drop()
		}()
		if _, err := u.Confirm(ctx, "first?"); !errors.Is(err, context.Canceled) {
			t.Fatalf("the error is %v", err)
		}
		io.WriteString(keyboard, "y\n")
		synctest.Wait()
		go func() {
			synctest.Wait()
			io.WriteString(keyboard, "n\n")
		}()
		if yes, err := u.Confirm(t.Context(), "second?"); yes || err != nil {
			t.Errorf("the answer is %v, %v", yes, err)
		}
	})
}

// TestOneQuestionAtATime checks that the next question waits for the first, or for the end of
// its context.
func TestOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(strings.NewReader("y\n"), io.Discard)
		end, err := u.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, drop := context.WithCancel(t.Context())
		drop()
		if _, err := u.Confirm(ctx, "second?"); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		end()
		if yes, err := u.Confirm(t.Context(), "third?"); !yes || err != nil {
			t.Errorf("the answer is %v, %v", yes, err)
		}
	})
}
