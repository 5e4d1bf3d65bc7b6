package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Who looks is told of a file that was applied, or refused, and of a server that was moved. The trail does not have the reason of a file that could not be read.
//
// Guarantees: G-0088.10
func TestWhoLooksIsToldOfFilesAndMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last audit.Record
		g := New(Options{Audit: func(_ context.Context, r audit.Record) { last = r }})
		defer g.Close(t.Context())
		for _, c := range []struct {
			about string
			act   func()
		}{
			{"a file", func() { _, _ = g.Apply(t.Context(), new(mcpjson.File)) }},
			{"a file that was refused", func() { g.NotApplied(errors.New("line 1: S3CRET")) }},
			{"a move", func() { g.Moved(t.Context(), "a", "node-2", nil) }},
		} {
			changed := g.Changed()
			for synctest.Wait(); wait.IsClosed(changed); synctest.Wait() { // of what was before
				changed = g.Changed()
			}
			c.act()
			if synctest.Wait(); !wait.IsClosed(changed) {
				t.Errorf("%s: nobody is told", c.about)
			}
			if strings.Contains(last.Reason, "S3CRET") {
				t.Errorf("%s: the trail says %q", c.about, last.Reason)
			}
		}
	})
}

// A client that has probably left loses the question that it did not answer, and none that has just been asked.
func TestOnlyAnOldQuestionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q questions
		ask := func() context.Context {
			ctx, end := context.WithCancelCause(t.Context())
			q.ask(&asked{owner: single("1"), end: end})
			return ctx
		}
		old := ask()
		<-time.NewTimer(leftAfter).C
		next := ask()
		if q.giveUp(single("1")); !errors.Is(context.Cause(old), errLeft) || next.Err() != nil {
			t.Errorf("the old question: %v, the next one: %v", context.Cause(old), context.Cause(next))
		}
	})
}

// A server that is over does not put the one to sleep that has its name in a later file.
func TestAServerOfAnEarlierFileIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		defer g.Close(t.Context())
		made := func() *upstream {
			u := &upstream{traffic: &traffic{notifier: g.notifier}, pool: new(pool.Pool[*connection]), states: new(states)}
			u.Name, u.rule = "a", life.Rule{Longest: time.Second}
			u.use.Begin()
			return u
		}
		before, now := made(), made()
		g.servers, g.lifecycle.kept = map[string]*upstream{"a": now}, func(string) bool { return false }
		<-time.NewTimer(time.Minute).C
		if g.lifecycle.mayStop(before) {
			t.Error("that of an earlier file ends the server")
		}
		if !g.lifecycle.mayStop(now) {
			t.Error("the server goes on")
		}
	})
}

// The page of who has several identities is that of the person.
func TestThePageOfAPerson(t *testing.T) {
	g := New(Options{UserLogins: &UserLogins{Person: func(identity string) string { return strings.TrimSuffix(identity, "-again") }}})
	defer g.Close(t.Context())
	if of := g.ownerOf("ada-again"); of.User != "ada" {
		t.Errorf("the page is of %q", of.User)
	}
}
