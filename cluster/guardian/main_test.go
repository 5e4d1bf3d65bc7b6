package guardian

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

func TestMain(m *testing.M) {
	guard := Start()
	if role := os.Getenv(roleVariable); role != "" {
		playRole(guard, role)
		return
	}
	testenv.Once()
	testenv.SideBySide(4)
	goleak.VerifyTestMain(m)
}

// roleVariable makes the test binary a process with that role.
const roleVariable = "BOWLINE_GUARDIAN_TEST_ROLE"
