package main

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/ledger"
)

func TestAudit(t *testing.T) {
	for _, c := range []struct {
		reported int
		executed map[string]int
		wrong    string
	}{
		{1, map[string]int{"1": 1}, ""},
		{1, nil, "not executed"},
		{1, map[string]int{"1": 2}, "executed 2 times"},
		{2, map[string]int{"1": 1}, "got 2 outcomes"},
		{1, map[string]int{"1": 1, "7": 1}, "got 0 outcomes"},
		{0, nil, "the callers of 0 got an outcome"},
	} {
		var all calls
		all.numbers.Store(1)
		all.all = map[string]ledger.Call{}
		for range c.reported {
			all.report("1", ledger.Answered())
		}
		_, err := all.audit(c.executed)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("reported %d times, executed %v: %v", c.reported, c.executed, err)
		}
	}
}
