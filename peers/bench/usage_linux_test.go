package bench

import (
	"context"
	"testing"
)

// TestProcessorTimeOfChildren checks that the processor time of a server process is counted.
func TestProcessorTimeOfChildren(t *testing.T) {
	c, err := contestantNamed(theFloor)
	if err != nil {
		t.Fatal(err)
	}
	m := &measurement{contestant: c}
	defer func() {
		for _, closeOne := range m.opened {
			if err := closeOne(); err != nil {
				t.Error(err)
			}
		}
	}()
	s, err := m.overStdio(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	spending := startSpending()
	if len(spending.children) != 1 {
		t.Fatalf("children %v, want one", spending.children)
	}
	before := processorTime(spending.children) - processorTime(nil)
	echo := s.echo(echoText)
	for range 100 {
		if err := echo(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if after := processorTime(spending.children) - processorTime(nil); after <= before {
		t.Errorf("a hundred calls took the server from %v to %v", before, after)
	}
	if cost := spending.stop(); cost.cpu <= 0 || cost.mallocs == 0 {
		t.Errorf("a hundred calls cost %+v", cost)
	}
}
