package peers

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the pages that the tests compare")

// hangGuard is the timeout of one check.
const hangGuard = time.Minute

func TestMain(m *testing.M) {
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}
