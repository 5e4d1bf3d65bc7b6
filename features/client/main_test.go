package client_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"go.uber.org/goleak"
)

// roleVariable selects the role of the test binary: the tests use real child processes.
const (
	roleVariable    = "BOWLINE_TEST_ROLE"
	addressVariable = "BOWLINE_TEST_ADDRESS"
	versionVariable = "BOWLINE_TEST_VERSION"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "server":
		playServer()
	case "grandchild":
		playGrandchild()
	case "features":
		if err := featureServer().Serve(context.Background(), &stdio.Server{}); err != nil {
			panic(err)
		}
	case "talk":
		if err := loggingServer().Serve(context.Background(), &stdio.Server{}); err != nil {
			panic(err)
		}
	case "banner":
		playBanner()
	case "crash":
		playCrash()
	case "echo":
		playEcho()
	case "steady":
		playSteady()
	case "crowd":
		playCrowd()
	case "script":
		playScript(os.Getenv(versionVariable))
	default:
		testenv.Once()
		testenv.SideBySide(4)
		slog.SetDefault(slog.New(slog.DiscardHandler)) // the children fail on purpose
		goleak.VerifyTestMain(m)
	}
}

// playServer serves on standard input and output, and starts a grandchild that holds
// standard output open.
func playServer() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	grandchild := exec.Command(self)
	grandchild.Env = append(os.Environ(), roleVariable+"=grandchild")
	grandchild.Stdout = os.Stdout
	if err := grandchild.Start(); err != nil {
		panic(err)
	}
	if err := newServer(server.Options{}).Serve(context.Background(), &stdio.Server{}); err != nil {
		panic(err)
	}
}

// playGrandchild connects to the test and runs until it is killed.
func playGrandchild() {
	link, err := net.Dial("tcp", os.Getenv(addressVariable))
	if err != nil {
		panic(err)
	}
	link.Read(make([]byte, 1)) // the test sends nothing, so this returns when the test ends
}
