package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// Guarantees: G-0001.16
func TestRunHasOneGoroutineWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		p := connect(t, handler{"m": echo}, conn.Options{})
		p.ready()
		wantGoroutines := func(when string, want int) {
			t.Helper()
			if synctest.Wait(); goroutines()-before != want {
				t.Errorf("%s: %d goroutines", when, goroutines()-before)
			}
		}
		for range 3 {
			for range 2 { // a conversation
				pass(90 * time.Millisecond)
				got, err := p.client.Call(t.Context(), conn.Request{Method: "m", Params: json.RawMessage(`[7]`)})
				if err != nil || string(got) != `[7]` {
					t.Fatalf("got %s, %v", got, err)
				}
				pass(90 * time.Millisecond)
				wantGoroutines("90 ms after a call", 5) // one waits for the next request
			}
			pass(20 * time.Millisecond)
			wantGoroutines("110 ms after a call", 2)
			pass(time.Hour)
			wantGoroutines("an hour later", 2)
		}
	})
}

// Guarantees: G-0001.16
func TestRestingConnKeepsItsDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		r := scripted(t, &script{}, conn.Options{})
		began := time.Now()
		_, err := r.Call(t.Context(), conn.Request{Method: "m", Timeout: time.Hour})
		if !errors.Is(err, conn.ErrTimedOut) || time.Since(began) != time.Hour {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if synctest.Wait(); goroutines()-before != 1 {
			t.Errorf("%d goroutines after the deadline", goroutines()-before)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// A context that has ended stops a Conn at any time: before Run, while it is
// busy, and while it rests.
func TestRunEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, busy := range []time.Duration{0, time.Millisecond, time.Hour} {
			ctx, cancel := context.WithCancelCause(t.Context())
			c, ended, why := conn.New(opens(&script{}), conn.Options{}), make(chan error, 1), errors.New("enough")
			if busy == 0 {
				cancel(why)
			}
			go func() { ended <- c.Run(ctx) }()
			pass(max(busy, 1))
			cancel(why)
			if err := <-ended; err != nil || !errors.Is(c.Status().Reason, why) {
				t.Errorf("after %v: %v, %v", busy, err, c.Status().Reason)
			}
		}
	})
}
