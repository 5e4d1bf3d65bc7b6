package streamable

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

func TestMain(m *testing.M) {
	runSessionsChild()
	testenv.Once()
	testenv.SideBySide(4)
	goleak.VerifyTestMain(m)
}
