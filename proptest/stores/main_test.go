package stores_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(brokenVariable) == "" {
		testenv.Once()
	}
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}
