package server_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// askingForProgress returns a server whose tool asks for a sample, and what it was told meanwhile.
func askingForProgress(how server.Asking, meta protocol.Meta) (s *server.Server, told func() []string) {
	var all []string // the client that reads it has the answer to the call
	s = newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, in struct {
		Progress bool `json:"progress,omitempty"`
	}) (string, error) {
		if in.Progress {
			ctx = server.OnProgress(ctx, func(p *protocol.ProgressParams) {
				all = append(all, fmt.Sprint(p.Progress, " of ", p.Total, " ", p.Message))
			})
		}
		q := &protocol.CreateMessageParams{MaxTokens: 5, Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}}
		q.Meta = meta
		result, err := server.Sample(ctx, q)
		if err != nil {
			return "", err
		}
		return result.Content.Text(), nil
	}, server.Asks(how, protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{}}))
	return s, func() []string { return all }
}

// sampleWithProgress answers with a sample, and reports progress until then and once more behind it.
func sampleWithProgress(late <-chan struct{}) client.Options {
	return client.Options{Sample: func(ctx context.Context, _ *client.Session, _ *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
		for i := range 100 {
			client.Progress(ctx, float64(i+1), 100, "tokens")
			client.Progress(ctx, 0.5, 100, "backwards")
		}
		go func() {
			<-late
			client.Progress(ctx, 101, 0, "late")
		}()
		return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("done")}}, nil
	}}
}

// What the handler of a question reports reaches the one who asked, in order and before the answer, over pipes and over HTTP. Some reports may be
// dropped, but not the last one. Where nobody can be told, the answer is the same.
//
// Guarantees: G-0031.20
func TestProgressOfAQuestion(t *testing.T) {
	for _, test := range []struct {
		version string
		how     server.Asking
		asks    bool
		told    bool
	}{
		{protocol.Version20241105, server.Waits, true, true},
		{protocol.Version20250618, server.Waits, true, true},
		{protocol.LatestLegacy, server.Waits, true, true},
		{protocol.LatestLegacy, server.Waits, false, false},
		{protocol.LatestLegacy, server.Reruns, true, false},
		{protocol.Latest, server.Waits, true, false},
	} {
		for _, over := range []string{"pipes", "HTTP"} {
			t.Run(fmt.Sprint(test.version, " ", test.how, " ", test.asks, " over ", over), func(t *testing.T) {
				s, told := askingForProgress(test.how, nil)
				var to transport.Transport = inmem.New(s.Accept, inmem.Options{})
				if over == "HTTP" {
					h := streamable.NewHandler(s, streamable.HandlerOptions{})
					web := httptest.NewServer(h)
					t.Cleanup(web.Close)
					t.Cleanup(func() { h.Close(0) })
					to = &streamable.Client{URL: web.URL}
				}
				late := make(chan struct{})
				o := sampleWithProgress(late)
				o.ProtocolVersion = test.version
				session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close(context.Background())
				if text, err := client.Call[string](t.Context(), session, "t", map[string]bool{"progress": test.asks}); err != nil || text != "done" {
					t.Fatalf("got %q, %v, want done", text, err)
				}
				close(late)
				if err := session.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
				all := told()
				if !test.told {
					if len(all) > 0 {
						t.Errorf("the asker was told %q, want nothing", all)
					}
					return
				}
				if len(all) == 0 || all[len(all)-1] != "100 of 100 tokens" {
					t.Fatalf("the asker was told %q, want 100 of 100 at last", all)
				}
				last := 0
				for _, one := range all {
					var n int
					if fmt.Sscan(one, &n); n <= last || !strings.HasSuffix(one, " of 100 tokens") {
						t.Errorf("after %d the asker was told %q", last, one)
					}
					last = n
				}
			})
		}
	}
}

// The token of a question is its id, and it has none unless progress is wanted: what the program has put there could be the id of another question.
//
// Guarantees: G-0031.20
func TestTheProgressTokenOfAQuestionIsItsID(t *testing.T) {
	for _, test := range []struct {
		meta           protocol.Meta
		progress, want string
	}{
		{nil, "true", `"_meta":{"progressToken":1}`},
		{nil, "false", ``},
		{protocol.Meta{"progressToken": []byte(`7`)}, "true", `"_meta":{"progressToken":1}`},
		{protocol.Meta{"progressToken": []byte(`7`)}, "false", `"_meta":{}`},
		{protocol.Meta{"mine": []byte(`{"a":1}`)}, "true", `"_meta":{"mine":{"a":1},"progressToken":1}`},
		{protocol.Meta{"mine": []byte(`{"a":1}`)}, "false", `"_meta":{"mine":{"a":1}}`},
	} {
		s, told := askingForProgress(server.Waits, test.meta)
		w := dial(t, s)
		w.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`)
		w.want(`"id":0`)
		w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"progress":`+test.progress+`}}}`)
		got := w.next()
		if !strings.Contains(got, test.want) || !strings.Contains(got, `"id":1`) || test.want == "" && strings.Contains(got, "_meta") {
			t.Errorf("meta %v, progress %s: got %s, want %s", test.meta, test.progress, got, test.want)
		}
		w.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"much"}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":3}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"role":"assistant","content":{"type":"text","text":"done"},"model":"m"}}`)
		w.want(`"text":"done"`)
		if want := fmt.Sprint(test.progress == "true"); fmt.Sprint(len(told()) == 1) != want {
			t.Errorf("meta %v, progress %s: the asker was told %q", test.meta, test.progress, told())
		}
	}
}
