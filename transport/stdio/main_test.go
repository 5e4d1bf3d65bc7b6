package stdio

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain plays a child instead of running tests when the environment says
// so.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role)
		return
	}
	goleak.VerifyTestMain(m)
}
