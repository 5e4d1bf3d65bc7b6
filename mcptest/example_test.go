package mcptest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
)

// newShop returns the server that is to be tested.
func newShop() *server.Server {
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "order"}, func(ctx context.Context, in struct{ Item string }) (string, error) {
		if err := server.Confirm(ctx, "Order "+in.Item+"?"); err != nil {
			return "", err
		}
		return "ordered " + in.Item, nil
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: new(protocol.ElicitationCapability)}))
	return s
}

// An exampleT prints what a test would report, because an example has no testing.T.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (*exampleT) Helper()                           {}
func (*exampleT) Context() context.Context          { return context.Background() }
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }
func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// A test of a server. The client plays a user who agrees. Eras runs such a test in both
// eras.
func ExampleConnect() {
	t := new(exampleT) // in a test: its *testing.T
	defer t.end()

	session := mcptest.Connect(t, newShop(), mcptest.Options{Client: client.Options{
		Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			fmt.Println(p.Message)
			return client.Accept(nil)
		},
	}})
	got, err := client.Call[string](t.Context(), session, "order", map[string]string{"Item": "rope"})
	if err != nil || got != "ordered rope" {
		t.Errorf("got %q, %v", got, err)
	}
	fmt.Println(got)
	// Output:
	// Order rope?
	// ordered rope
}
