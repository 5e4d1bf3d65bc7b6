package peers

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the pages that the tests compare")

// hangGuard is the timeout of one check.
const hangGuard = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8") // the checks wait for processes more than they compute
	goleak.VerifyTestMain(m)
}
