package conn

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

// TestMain keeps silent what fails on purpose.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
