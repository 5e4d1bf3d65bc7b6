package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// reportProgress reports progress once, and then returns.
func reportProgress(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	server.Progress(ctx, 1, 2, "halfway")
	return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: "done"}}}, nil
}

// Only requests with a progress token get progress.
func TestProgressNeedsAToken(t *testing.T) {
	w := startSession(t, protocol.Tool{}, reportProgress)
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

// Progress reaches its client in order, without steps backwards, and the last one
// before the response is not dropped. After the response nothing is sent.
func TestProgressEndsWithTheResponse(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		answered := make(chan struct{})
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			for i := range 100 { // in quick succession: some may be dropped, but not the last
				server.Progress(ctx, i+1, 100, "")
			}
			server.Progress(ctx, 50, 100, "backwards")
			go func() {
				<-answered
				server.Progress(ctx, 101, 0, "late")
			}()
			return "done", nil
		})
		server.AddTool(s, protocol.Tool{Name: "fails"}, func(ctx context.Context, _ struct{}) (string, error) {
			for i := range 100 {
				server.Progress(ctx, i+1, 100, "")
			}
			return "", &jsonrpc.Error{Code: 7, Message: "no"}
		})
		server.AddTool(s, protocol.Tool{Name: "late"}, func(ctx context.Context, _ struct{}) (string, error) {
			go func() {
				<-answered
				server.Progress(ctx, 1, 2, "the first one is too late")
			}()
			return "done", nil
		})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		w.ask(legacy(`2`, "tools/call", `"name":"late","_meta":{"progressToken":2}`))
		for _, tool := range []string{"t", "fails"} {
			w.send(legacy(`1`, "tools/call", `"name":"`+tool+`","_meta":{"progressToken":1}`))
			frame, last := w.next(), ""
			for ; !strings.Contains(frame, `"id":1`); frame = w.next() {
				last = frame
			}
			if !strings.Contains(last, `"progress":100`) {
				t.Errorf("%s: the last progress is %s, want 100", tool, last)
			}
		}
		close(answered)
		w.wantNothing()
	})
}

// What a handler reports and logs before its call becomes a task goes to the client that waits, and nothing of it afterwards.
//
// Guarantees: G-0032.9
func TestReportsBeforeACallBecomesATask(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{Tasks: &server.TaskOptions{After: time.Second}})
		server.AddTool(s, protocol.Tool{Name: "t", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				server.Progress(ctx, 1, 2, "early")
				pass(time.Millisecond)
				server.Logger(ctx).Info("early")
				pass(time.Minute)
				server.Progress(ctx, 2, 2, "late")
				server.Logger(ctx).Info("late")
				return "done", nil
			})
		w := dial(t, s)
		w.send(strings.Replace(withTasks(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"progressToken":"p","io.modelcontextprotocol/logLevel":"info",`, 1))
		w.want(`"progressToken":"p","progress":1,"total":2,"message":"early"`)
		w.want(`"notifications/message"`, `"data":"early"`)
		w.want(`"id":1`, `"resultType":"task"`)
		pass(time.Hour)
		w.wantNothing()
		s.Close(t.Context())
	})
}

// The first report is sent whatever its value is, and after it only those that grow.
func TestProgressMayBeginAtZero(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		for _, done := range []int{0, 0, -1, 1} {
			server.Progress(ctx, done, 2, fmt.Sprint("at ", done))
		}
		return "done", nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`)
	for _, fragment := range []string{`"progressToken":"p","progress":0,"total":2,"message":"at 0"`, `"progress":1,`, `done`} {
		w.want(fragment)
	}
}
