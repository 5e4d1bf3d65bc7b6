package skills_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rawPeer exchanges single frames with a server.
type rawPeer struct{ *peertest.Peer }

// dial connects a raw peer for the length of a test.
func dial(t *testing.T, s *server.Server) *rawPeer {
	t.Helper()
	ours, theirs := inmem.Pipe(inmem.Options{})
	served, watched := make(chan error, 1), specification.WatchServer(t)(theirs)
	go func() { served <- s.ServeLink(t.Context(), watched) }()
	w := &rawPeer{peertest.Bind(t, ours)}
	t.Cleanup(func() {
		ours.Close(0)
		testenv.Receive(t, served, "the end of the server")
	})
	return w
}

// request returns the frame of a request of 2026-07-28. Params are the members next to _meta.
func request(method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"0"}}}}`
}

// A response is the response to any request.
type response struct {
	Result map[string]json.RawMessage `json:"result"`
	Error  *fault                     `json:"error"`
}

type fault struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

// ask sends a request and reads the response, which must be the next frame.
func (w *rawPeer) ask(frame string) (r response) {
	w.T.Helper()
	w.read(frame, &r)
	return r
}

func (w *rawPeer) read(frame string, into any) {
	w.T.Helper()
	w.Send(frame)
	got := w.Next()
	if err := protocol.Unmarshal([]byte(got), into); err != nil {
		w.T.Fatalf("%s: %v", got, err)
	}
}

// wantFault checks that a request is refused with the given code.
func (w *rawPeer) wantFault(code int64, frame string) {
	w.T.Helper()
	if got := w.ask(frame).Error; got == nil || got.Code != code {
		w.T.Fatalf("%s\ngot %v, want the code %d", frame, got, code)
	}
}

// result decodes the result of a request.
func result[R any](w *rawPeer, method, params string) (r R) {
	w.T.Helper()
	var got struct {
		Result *R     `json:"result"`
		Error  *fault `json:"error"`
	}
	if w.read(request(method, params), &got); got.Result == nil {
		w.T.Fatalf("%s: got %v, want a result", method, got.Error)
	}
	return *got.Result
}
