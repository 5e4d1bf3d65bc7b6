package peers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

var update = flag.Bool("update", false, "rewrite the pages that the tests compare")

// hangGuard is the timeout of one check.
const hangGuard = time.Minute

// executedVariable is in the environment of this program where it runs as a server of TestChaosBehindAGateway: the path of a file, for the
// ids of the calls that it executes.
const executedVariable = "BOWLINE_CHAOS_EXECUTED"

func TestMain(m *testing.M) {
	if path := os.Getenv(executedVariable); path != "" {
		if err := serveMarks(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// serveMarks serves the tool of package marks.
func serveMarks(path string) error {
	executed, err := marks.Open(path)
	if err != nil {
		return err
	}
	s := server.New(bowlineInfo, server.Options{})
	marks.AddTool(s, executed)
	return errors.Join(s.Serve(context.Background(), &stdio.Server{}), executed.Close())
}
