package peers

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs are built into a folder of the test’s own.
func programs(tb testing.TB) *Programs {
	tb.Helper()
	folder := tb.TempDir()
	built, err := BuildPrograms(folder)
	if err != nil {
		tb.Fatal(err)
	}
	return built
}
