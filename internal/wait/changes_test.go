package wait_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/internal/wait"
)

func TestChangesWakeThoseWhoWaitForTheNextOne(t *testing.T) {
	var c wait.Changes
	c.Announce() // nobody waits
	first, second := c.Next(), c.Next()
	if wait.IsClosed(first) {
		t.Error("a change before Next woke who called it afterwards")
	}
	c.Announce()
	if !wait.IsClosed(first) || !wait.IsClosed(second) {
		t.Error("not all who waited are awake")
	}
	if third := c.Next(); wait.IsClosed(third) {
		t.Error("a change wakes twice")
	}
}
