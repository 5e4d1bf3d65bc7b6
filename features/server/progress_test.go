package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// stepping tells of progress once, and then answers.
func stepping(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	server.Progress(ctx, 1, 2, "halfway")
	return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: "done"}}}, nil
}

func TestProgressGoesToThoseWhoAsk(t *testing.T) {
	w := serving(t, protocol.Tool{}, stepping)
	for _, test := range []struct {
		meta string
		want []string // a fragment of each frame
	}{
		{`{"progressToken":"p"}`, []string{`"progressToken":"p","progress":1,"total":2,"message":"halfway"`, `done`}},
		{`{"progressToken":7}`, []string{`"progressToken":7,`, `done`}},
		{`{}`, []string{`done`}},
		{`null`, []string{`done`}},
		{`{"progressToken":null}`, []string{`done`}},
		{`{"progressToken":1.5}`, []string{`-32602`}},
		{`{"progressToken":{}}`, []string{`-32602`}},
		{`{"progressToken":true}`, []string{`-32602`}},
	} {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":%s}}`, test.meta))
		for _, fragment := range test.want {
			w.want(fragment)
		}
	}
}

// A handler's goroutine that outlives it reports to nobody.
func TestNothingIsReportedAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{})
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			for i := range 100 { // in one go: some may be left out, and the last is not
				server.Progress(ctx, i+1, 100, "")
			}
			server.Progress(ctx, 50, 100, "backwards")
			go func() {
				<-answered
				server.Progress(ctx, 101, 0, "late")
			}()
			return "done", nil
		})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}`)
		frame, last := w.next(), ""
		for ; !strings.Contains(frame, `"id":1`); frame = w.next() {
			last = frame
		}
		if !strings.Contains(last, `"progress":100`) {
			t.Errorf("the last report is %s", last)
		}
		close(answered)
		w.wantNothing()
	})
}
