package proptest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is Echo at the other end of a pipe in memory.
func peer() transport.Transport {
	return inmem.New(func(link transport.Link) { go proptest.Echo(link) }, inmem.Options{})
}

func TestCorrelation(t *testing.T) { proptest.Correlation(t, peer(), proptest.Options{}) }

func TestRestart(t *testing.T) { proptest.Restart(t, peer(), proptest.Options{}) }

func TestNoLeaks(t *testing.T) { proptest.NoLeaks(t, peer(), proptest.Options{}) }

func TestCancelIdempotent(t *testing.T) { proptest.CancelIdempotent(t, peer(), proptest.Options{}) }

func TestStopAnywhere(t *testing.T) { proptest.StopAnywhere(t, peer(), proptest.Options{}) }
