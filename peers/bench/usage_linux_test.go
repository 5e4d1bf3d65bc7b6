package bench

import (
	"context"
	"testing"
)

// TestProcessorTimeOfChildren checks that the processor time of a server process is counted.
func TestProcessorTimeOfChildren(t *testing.T) {
	m := measurementOf(t, theFloor)
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

// TestServerOfAGateway checks that the server behind a gateway, which is a child of a child, is counted as well.
func TestServerOfAGateway(t *testing.T) {
	if _, err := measurementOf(t, bowlineGateway).overHTTP(context.Background()); err != nil {
		t.Fatal(err)
	}
	if all := children(); len(all) != 2 {
		t.Errorf("children %v, want the gateway and its server", all)
	}
}

// measurementOf is a measurement of a contestant whose sessions and processes end with the test.
func measurementOf(t *testing.T, contestant string) *measurement {
	c, err := contestantNamed(contestant)
	if err != nil {
		t.Fatal(err)
	}
	m := &measurement{contestant: c}
	t.Cleanup(func() {
		for _, closeOne := range m.opened {
			if err := closeOne(); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}
