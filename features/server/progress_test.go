package server_test

import (
	"context"
	"fmt"
	"testing"

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
