package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A camera is a model that calls every function once, and keeps what it gets.
type camera struct {
	functions []Function
	outputs   []Output
}

func (m *camera) Next(_ context.Context, functions []Function, outputs []Output) (uses []Use, text string, err error) {
	if outputs != nil {
		m.outputs = outputs
		return nil, "seen", nil
	}
	m.functions = functions
	for _, f := range functions {
		uses = append(uses, Use{ID: f.Name, Name: f.Name, Arguments: []byte(`{}`)})
	}
	return append(uses, Use{ID: "none", Name: "none"}), "", nil
}

// TestTheModelGetsWhatTheToolsReturn checks names, images and errors, with two servers that have
// the same tools.
func TestTheModelGetsWhatTheToolsReturn(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "camera", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "take.photo"}, func(context.Context, struct{}) (*protocol.ImageContent, error) {
		return &protocol.ImageContent{MIMEType: "image/png", Data: []byte{1}}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "zoom"}, func(context.Context, struct{ By int }) (string, error) { return "", nil })
	defer s.Close(context.Background())
	c := client.New(protocol.Implementation{Name: "agent", Version: "1"}, client.Options{})
	defer c.Close(context.Background())
	for _, name := range []string{"front", "rear"} {
		if _, err := c.Start(t.Context(), name, inmem.New(s.Accept, inmem.Options{})); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	model := new(camera)
	if text, err := converse(t.Context(), c, model); err != nil || text != "seen" {
		t.Fatalf("the conversation ended with %q, %v", text, err)
	}
	got := map[string]string{}
	for _, o := range model.outputs {
		what := "succeeded"
		if o.IsError {
			what = "failed"
		}
		got[o.ID] = what + " " + o.Parts[0].MIMEType
	}
	want := map[string]string{
		"front__take_photo": "succeeded image/png", "rear__take_photo": "succeeded image/png",
		"front__zoom": "failed ", "rear__zoom": "failed ", "none": "failed ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the outputs (-want +got):\n%s", diff)
	}
	for _, f := range model.functions {
		if !strings.Contains(string(f.Schema), `"object"`) {
			t.Errorf("the schema of %s is %s", f.Name, f.Schema)
		}
	}
}

func TestNamesAreUniqueAndFit(t *testing.T) {
	box, long := &toolbox{tools: make(map[string]tool)}, strings.Repeat("x", 70)
	for _, c := range [][2]string{{"a.b", "a_b"}, {"a b", "a_b_2"}, {"a/b", "a_b_3"}, {long, long[:64]}, {long, long[:62] + "_2"}, {"é", "_"}} {
		got := box.unique(c[0])
		box.tools[got] = tool{session: new(client.Session)}
		if got != c[1] {
			t.Errorf("%s has the name %s, want %s", c[0], got, c[1])
		}
	}
}

// TestTheModelLearnsWhatToDoAfterAFailure checks what a model reads when a call has no result: whether
// it must change the call, may repeat it, or must find out first.
func TestTheModelLearnsWhatToDoAfterAFailure(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "busy", Version: "1"}, server.Options{})
	for name, code := range map[string]int64{"overloaded": jsonrpc.CodeOverloaded, "broken": jsonrpc.CodeInternalError} {
		server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) {
			return "", &jsonrpc.Error{Code: code, Message: "the words of the server"}
		})
	}
	defer s.Close(context.Background())
	c := client.New(protocol.Implementation{Name: "agent", Version: "1"}, client.Options{})
	defer c.Close(context.Background())
	session, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	box := &toolbox{tools: map[string]tool{
		"overloaded": {session, "overloaded"}, "broken": {session, "broken"}, "unknown": {session, "none"},
	}}
	for _, c := range []struct{ name, arguments, want string }{
		{"overloaded", `{"x":`, "this call is wrong"}, // cut off; it was not executed, and would never be
		{"unknown", `{}`, "this call is wrong"},
		{"overloaded", `{}`, "safe to call it again"},
		{"broken", `{}`, "may have run"},
	} {
		out := box.perform(t.Context(), Use{ID: "1", Name: c.name, Arguments: []byte(c.arguments)})
		if text := out.Parts[0].Text; !out.IsError || !strings.Contains(text, c.want) {
			t.Errorf("%s with %s: failed is %t and the model reads %q, want %q in it", c.name, c.arguments, out.IsError, text, c.want)
		}
	}
}
