package cluster_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

// TestMain discards the logs of losses that tests cause.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
