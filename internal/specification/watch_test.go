package specification_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A failureRecorder is a testing.TB that records failures.
type failureRecorder struct {
	testing.TB
	failures []string
}

func (*failureRecorder) Helper()        {}
func (*failureRecorder) Cleanup(func()) {}
func (t *failureRecorder) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// Each message that a server sends is checked, also in a batch, and is sent unchanged.
func TestWatchServer(t *testing.T) {
	for name, test := range map[string]struct{ frame, fault string }{
		"a good message":          {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, ""},
		"a good batch":            {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, ""},
		"a method of the client":  {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "wrong side"},
		"one bad one in a batch":  {`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"elicitation/create"}]`, "ElicitRequest"},
		"an answer to nothing":    {`{"jsonrpc":"2.0","id":1,"result":{}}`, "answers no request"},
		"what is no JSON":         {`{`, "unexpected end"},
		"a number with fractions": {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "PingRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			trial, got := &failureRecorder{TB: t}, []string(nil)
			serverLink, clientLink := inmem.Pipe(inmem.Options{})
			defer serverLink.Close(0)
			serverLink.Bind(peertest.Receive(func(in transport.Inbound) { got = append(got, string(in.Frame)) }))
			serverLink.Grant(transport.Main, 1)
			watched := specification.WatchServer(trial)(clientLink)
			watched.Bind(peertest.Ignore{})
			if err := watched.Send(transport.Outbound{Frame: []byte(test.frame)}); err != nil {
				t.Fatal(err)
			}
			serverLink.Close(0)
			failed := strings.Join(trial.failures, "\n")
			if (test.fault == "") != (failed == "") || !strings.Contains(failed, test.fault) {
				t.Errorf("want %q, got %q", test.fault, failed)
			}
			if len(got) != 1 || got[0] != test.frame {
				t.Errorf("got %s", got)
			}
		})
	}
}
