package child

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A process notices that another one of its kind runs, and that it gets the calls of two users.
func TestWhatMustNotBeIsNoticed(t *testing.T) {
	folder := t.TempDir()
	violations := filepath.Join(folder, "violations")
	t.Setenv(Violation, violations)
	t.Setenv(Lock, filepath.Join(folder, "lock"))
	t.Setenv(Ledger, filepath.Join(folder, "ledger"))
	held, err := private.Lock(os.Getenv(Lock))
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(One); err == nil {
		t.Error("a second one runs")
	}
	ledger := new(strings.Builder)
	own := &child{ledger: ledger}
	for _, call := range []struct {
		id, user string
		ok       bool
	}{{"1", "ann", true}, {"2", "bob", false}, {"3", "ann", true}} {
		if got, err := own.mark(context.Background(), Arguments{marks.Arguments{ID: call.id}, call.user}); (err == nil) != call.ok || call.ok && got != call.id {
			t.Errorf("call %s: %q, %v", call.id, got, err)
		}
	}
	shared := &child{ledger: ledger, lock: held}
	for _, user := range []string{"ann", "bob"} {
		if _, err := shared.mark(context.Background(), Arguments{marks.Arguments{ID: "4"}, user}); err != nil {
			t.Errorf("the server of all: %v", err)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if again, err := private.Lock(os.Getenv(Lock)); err != nil {
		t.Errorf("after the first has ended: %v", err)
	} else {
		again.Close()
	}
	text, err := os.ReadFile(violations)
	if err != nil || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), "another process runs") || !strings.Contains(string(text), "a call of bob comes to the process of ann") || strings.Contains(ledger.String(), "2") {
		t.Errorf("%v; it has noticed %q, and written %q", err, text, ledger)
	}
}
