package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// refused is the answer of a model server that refuses the request.
const refused = "refused"

// chatWith lets a chat talk to a model server that gives these answers, the last one for ever, and returns what that server was asked.
func chatWith(t *testing.T, answers ...string) (text string, asked []map[string]any, err error) {
	t.Helper()
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.Header.Get("Authorization") != "Bearer key" {
			t.Errorf("the model server was asked by %v: %v", r.Header, err)
		}
		asked = append(asked, request)
		answer := answers[min(len(asked), len(answers))-1]
		if answer == refused {
			http.Error(w, "the quota is used up", http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer models.Close()
	defer http.DefaultClient.CloseIdleConnections()
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "add", Description: "adds"}, func(_ context.Context, in struct{ A, B int }) (string, error) {
		return fmt.Sprint(in.A + in.B), nil
	})
	server.AddTool(s, protocol.Tool{Name: "photo"}, func(context.Context, struct{}) (*protocol.ImageContent, error) {
		return &protocol.ImageContent{MIMEType: "image/png", Data: []byte{1}}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "long"}, func(context.Context, struct{}) (string, error) { return strings.Repeat("é", maxText), nil })
	defer s.Close(context.Background())
	c := client.New(protocol.Implementation{Name: "agent", Version: "1"}, client.Options{})
	defer c.Close(context.Background())
	if _, err := c.Start(t.Context(), "s", inmem.New(s.Accept, inmem.Options{})); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	model := &chat{URL: models.URL, Key: "key", Name: "m"}
	model.ask("what is 1 + 2?")
	text, err = converse(t.Context(), c, model)
	return text, asked, err
}

// calls is an answer of a model that wants calls, each a name and arguments.
func calls(all ...string) string {
	var wanted []toolCall
	for i := 0; i < len(all); i += 2 {
		wanted = append(wanted, toolCall{fmt.Sprint("id", i/2), "function", functionCall{all[i], all[i+1]}})
	}
	return choice(message{Role: "assistant", ToolCalls: wanted})
}

func choice(m message) string {
	answer, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": m}}})
	if err != nil {
		panic(err)
	}
	return string(answer)
}

// TestAChatCallsTools checks what a model server is sent: the tools as functions, and the results as messages of the calls that it wanted.
func TestAChatCallsTools(t *testing.T) {
	text, asked, err := chatWith(t,
		calls("s__add", `{"A":1,"B":2}`, "s__photo", `{}`, "s__add", `{"A":`, "none", ""),
		calls("s__long", `{}`), choice(message{Content: "3"}))
	if err != nil || text != "3" {
		t.Fatalf("the conversation ended with %q, %v", text, err)
	}
	messages := asked[1]["messages"].([]any)
	var got []string
	for _, m := range messages {
		m := m.(map[string]any)
		got = append(got, fmt.Sprint(m["role"], " ", m["tool_call_id"], " ", m["content"]))
	}
	want := []string{
		"user <nil> what is 1 + 2?", "assistant <nil> <nil>", "tool id0 3\n", "tool id1 (image 1 of the next message)\n",
		"tool id2 failed: this call is wrong, so change it before you call again", "tool id3 failed: there is no function none\n",
		"user <nil> [map[image_url:map[url:data:image/png;base64,AQ==] type:image_url]]",
	}
	if len(got) > 4 {
		got[4], _, _ = strings.Cut(got[4], ": client")
		got[4] = got[4][:min(len(got[4]), len(want[4]))]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the second request (-want +got):\n%s", diff)
	}
	last := asked[2]["messages"].([]any)
	if long := last[len(last)-1].(map[string]any)["content"].(string); len(long) > maxText+100 || !strings.Contains(long, "cut off") {
		t.Errorf("the model reads %d bytes of one tool", len(long))
	}
	tool := asked[0]["tools"].([]any)[0].(map[string]any)["function"].(map[string]any)
	if tool["name"] != "s__add" || tool["description"] != "adds" || tool["parameters"].(map[string]any)["type"] != "object" {
		t.Errorf("the model is offered %v", tool)
	}
}

// TestABlobWithoutATypeIsNamed checks that a model reads that there is one, also if it is empty.
func TestABlobWithoutATypeIsNamed(t *testing.T) {
	for n, want := range map[int]string{0: "(0 bytes of application/octet-stream)\n", 3: "(3 bytes of application/octet-stream)\n"} {
		part := resourcePart(&protocol.ResourceContents{URI: "file:///x", Blob: make([]byte, n)})
		if got, _ := textOf(Output{Parts: []Part{part}}, nil); got != want {
			t.Errorf("the model reads %q of %d bytes, want %q", got, n, want)
		}
	}
}

// TestAChatIsBounded checks that a model cannot go on for ever, and what becomes of answers that are none.
func TestAChatIsBounded(t *testing.T) {
	for answer, want := range map[string]string{
		calls("s__add", `{"A":1,"B":2}`):                               "the model has not answered after 20 turns",
		calls(strings.Split(strings.Repeat("x,", 2*33-1)+"x", ",")...): "the model wants 33 calls at once",
		`{"choices":[]}`:                     "its answer has no choice",
		`no JSON`:                            "read its answer",
		`"` + strings.Repeat("x", maxAnswer): "longer than",
		refused:                              `status 429: "the quota is used up`,
	} {
		text, asked, err := chatWith(t, answer)
		if err == nil || !strings.Contains(err.Error(), want) || len(asked) > 20 {
			t.Errorf("after %d requests: %q, %v, want %q", len(asked), text, err, want)
		}
	}
}
