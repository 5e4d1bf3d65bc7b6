//go:build browser && unix

package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"go.uber.org/goleak"
)

var (
	update = flag.Bool("update", false, "draw the pictures of docs/guide again")
	keep   = flag.String("keep", "", "draw the pictures into a `FOLDER`")
)

// childRole makes this program the server of a file.
const childRole = "BOWLINE_BROWSER_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		child(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// child serves, or fails as its role says.
func child(role string) {
	if role == "broken" {
		fmt.Fprintf(os.Stderr, "Error: \x1b[31mbrowser\x1b[0m is \u202enot installed %s\n", hostile)
		os.Exit(1)
	}
	s := server.New(protocol.Implementation{Name: "child", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "echo", Description: "Says what it is told."}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	if err := s.Run(context.Background(), &stdio.Server{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
