package guardian

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	guard := Run()
	if role := os.Getenv(roleVariable); role != "" {
		playRole(guard, role)
		return
	}
	goleak.VerifyTestMain(m)
}

// roleVariable makes the test binary a process with that role.
const roleVariable = "BOWLINE_GUARDIAN_TEST_ROLE"
