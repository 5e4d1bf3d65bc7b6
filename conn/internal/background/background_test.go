package background

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A Group names the functions that still run when the grace has passed, and starts none after its end.
func TestGroupNamesWhatStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, why, release := New(), errors.New("over"), make(chan struct{})
		g.Add("quick", func(ctx context.Context) { <-ctx.Done() })
		for _, name := range []string{"deaf", "also deaf"} {
			g.Add(name, func(context.Context) { <-release })
		}
		var cause error
		g.Add("returns", func(ctx context.Context) { <-ctx.Done(); cause = context.Cause(ctx) })
		if running := g.Await(time.Hour); running != nil || g.Ending() {
			t.Fatalf("%q end before End, want none", running)
		}
		g.End(why)
		began := time.Now()
		running := g.Await(time.Second)
		if !slices.Equal(running, []string{"also deaf", "deaf"}) || time.Since(began) != time.Second || !g.Ending() {
			t.Errorf("%q still run after %v, want the two that are deaf after 1s", running, time.Since(began))
		}
		if cause != why {
			t.Errorf("the cause is %v, want %v", cause, why)
		}
		if g.Add("late", func(context.Context) { t.Error("a function was started after the end") }) {
			t.Error("Add reported true after the end")
		}
		close(release)
		synctest.Wait()
		if g.Ending() || g.Await(time.Hour) != nil {
			t.Error("functions run although all have returned")
		}
	})
}

// A nil Group has no functions.
func TestNilGroup(t *testing.T) {
	var g *Group
	if g.End(nil); g.Await(time.Hour) != nil || g.Ending() {
		t.Error("a nil Group has functions")
	}
}
