package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary also runs as the servers, like the program; see serverCommand.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		if err := serve(context.Background(), os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// TestContestantsEcho checks that each contestant, including the floors, echoes the text over
// each of its wires, and nested objects if it can. A call that returns something else fails.
func TestContestantsEcho(t *testing.T) {
	for _, c := range contestants() {
		if c.missing() != "" { // a program of others
			continue
		}
		m := &measurement{contestant: c}
		if c.memory != nil {
			t.Run("memory/"+c.name, func(t *testing.T) { checkEcho(t, m, memoryCalls) })
		}
		if c.stdio != nil {
			t.Run("stdio/"+c.name, func(t *testing.T) { checkEcho(t, m, (*measurement).overStdio) })
		}
		if c.http != nil {
			t.Run("http/"+c.name, func(t *testing.T) { checkEcho(t, m, (*measurement).overHTTP) })
		}
		for _, closeOne := range m.opened {
			if err := closeOne(); err != nil {
				t.Errorf("%s: close: %v", c.name, err)
			}
		}
	}
}

func checkEcho(t *testing.T, m *measurement, open func(*measurement, context.Context) (*session, error)) {
	s, err := open(m, context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{echoText, "", "another"} {
		if err := s.echo(text)(context.Background()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if s.order == nil {
		return
	}
	if err := s.order(orderOf(1000))(context.Background()); err != nil {
		t.Errorf("an order: %v", err)
	}
}

func TestAnotherAnswerIsAnError(t *testing.T) {
	if err := sameText("an answer", "a question"); err == nil {
		t.Error("another text is accepted as the echo")
	}
	if err := sameOrder(orderOf(1000), orderOf(2000)); err == nil {
		t.Error("another order is accepted as the echo")
	}
}
