package resource_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// TestAQuestionBelongsToItsUser checks that a user cannot answer a question to another user.
//
// Guarantees: G-0046.6
func TestAQuestionBelongsToItsUser(t *testing.T) {
	s := newSite(t, nil, authtest.Options{})
	call := func(token, more string) reply {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{}` + more + `,"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
		return s.send(http.MethodPost, body, bearer(token), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: ask")
	}
	var asked struct {
		Result struct {
			State    string                     `json:"requestState"`
			Requests map[string]json.RawMessage `json:"inputRequests"`
		} `json:"result"`
	}
	first := call(s.as.Issue("ada", "read"), "")
	if err := json.Unmarshal([]byte(first.body), &asked); err != nil || asked.Result.State == "" || len(asked.Result.Requests) != 1 {
		t.Fatalf("%v: %+v", err, first)
	}
	answers := make(map[string]any)
	for key := range asked.Result.Requests {
		answers[key] = map[string]any{"action": "accept", "content": map[string]any{"size": "small"}}
	}
	more := `,"requestState":` + string(mustJSON(t, asked.Result.State)) + `,"inputResponses":` + string(mustJSON(t, answers))
	if r := call(s.as.Issue("eve", "read write"), more); !strings.Contains(r.body, "invalid_request_state") {
		t.Errorf("another user has answered: %+v", r)
	}
	if r := call(s.as.Issue("ada", "read write"), more); r.status != http.StatusOK || !strings.Contains(r.body, "small") {
		t.Errorf("another token of the same user: %+v", r)
	}
}

// TestATaskBelongsToItsUser checks that a task does not exist for another user.
//
// Guarantees: G-0046.6
func TestATaskBelongsToItsUser(t *testing.T) {
	s := newSite(t, nil, authtest.Options{})
	connect := func(user string) *client.Session {
		t.Helper()
		c := client.New(protocol.Implementation{Name: user, Version: "1"}, client.Options{Tasks: true})
		session, err := c.Connect(t.Context(), &streamable.Client{URL: s.url, Header: http.Header{"Authorization": {"Bearer " + s.as.Issue(user, "read")}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		return session
	}
	task, err := connect("ada").StartTool(t.Context(), &protocol.CallToolParams{Name: "render", Arguments: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := connect("eve").Task(task.ID()).Wait(t.Context()); err == nil {
		t.Errorf("another user has the result %+v", result)
	}
	if result, err := connect("ada").Task(task.ID()).Wait(t.Context()); err != nil || result.Content.Text() != "rendered" {
		t.Errorf("the same user, with another token: %+v, %v", result, err)
	}
}
