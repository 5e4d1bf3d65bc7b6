package peers

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8") // the checks wait for processes more than they compute
	goleak.VerifyTestMain(m)
}

// programs builds the programs into a temporary folder of the test.
func programs(tb testing.TB) *Programs {
	tb.Helper()
	folder := tb.TempDir()
	built, err := BuildPrograms(folder)
	if err != nil {
		tb.Fatal(err)
	}
	return built
}
