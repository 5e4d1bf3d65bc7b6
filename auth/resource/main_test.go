package resource_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}
