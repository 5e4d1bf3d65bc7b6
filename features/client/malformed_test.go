package client_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// A notification whose params cannot be read is ignored, unless nothing in them matters.
func TestNotificationsThatCannotBeRead(t *testing.T) {
	notify := func(method, params string) string {
		return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":` + params + `}`
	}
	s := answeringWith(protocol.MethodCallTool, func(f frame) []string {
		return []string{
			notify("resources/updated", `{"uri":7}`), notify("resources/updated", `{"uri":"file:///1"}`), notify("tools/list_changed", `{"_meta":7}`),
			f.result(`{"content":[]}`),
		}
	})
	var mu sync.Mutex
	var got []string
	session := openFake(t, s, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case *client.ResourceUpdated:
			got = append(got, e.URI)
		case *client.ToolsChanged:
			got = append(got, "tools")
		}
	}})
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(t.Context()); err != nil { // it delivers what has come
		t.Error(err)
	}
	if want := []string{"file:///1", "tools"}; !slices.Equal(got, want) {
		t.Errorf("got events of %q, want %q", got, want)
	}
}

// A modern server makes no requests. One that does is told that there is no such method, whatever the client could answer.
func TestModernServerMakesNoRequests(t *testing.T) {
	s := grantingServer()
	s.on(protocol.MethodCallTool, func(f frame, before func(frame) []string) []string {
		return append([]string{`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`}, before(f)...)
	})
	session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
		t.Error("a modern server got the roots")
		return nil, nil
	}})
	if _, err := callTool(t, session, "x", ""); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	testenv.Within(t, "the server reads everything", s.serving.Wait)
	var fault struct{ Code int }
	if answers := s.received(""); len(answers) != 1 || json.Unmarshal(answers[0].Error, &fault) != nil || fault.Code != -32601 {
		t.Errorf("got the answers %+v, want one with the code -32601", answers)
	}
}
