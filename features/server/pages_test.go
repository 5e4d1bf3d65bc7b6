package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

var pages = protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{URL: &protocol.Capability{}}}

func signInPage() *protocol.ElicitParams {
	return &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: "Sign in", URL: "https://example.com/in", ElicitationID: "page-7"}
}

// ElicitationComplete sends notifications/elicitation/complete to a client whose
// revision has it.
//
// Guarantees: G-0031.8
func TestElicitationCompleteIsSent(t *testing.T) {
	sent, events := make(chan error, 1), make(chan string, 1)
	signsIn := func() *server.Server {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "in"}, func(ctx context.Context, _ struct{}) (string, error) {
			_, err := server.Ask(ctx, protocol.InputRequests{"page": signInPage()})
			if session := server.RequestFrom(ctx).Session; session != nil && err == nil {
				sent <- session.ElicitationComplete(ctx, "page-7")
			}
			return "", err
		}, server.Asks(server.Waits, pages))
		return s
	}
	o := client.Options{
		ElicitURL: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			if p.URL != "https://example.com/in" {
				return client.Decline()
			}
			return client.Accept(nil)
		},
		OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if done, ok := e.(*client.ElicitationComplete); ok {
				events <- done.ID
			}
		},
	}
	everywhereSince(t, protocol.Version20251125, signsIn, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "in"}); err != nil || result.IsError {
			t.Fatalf("got %+v, %v, want no error", result, err)
		}
		if session.Server().ProtocolVersion == protocol.Latest {
			return
		}
		if err := within(t, sent); err != nil {
			t.Fatal(err)
		}
		if id := within(t, events); id != "page-7" {
			t.Errorf("got the end of elicitation %q, want page-7", id)
		}
	})
}

// ElicitationComplete fails with ErrUnsupported if the client or its revision lacks URL
// elicitation.
//
// Guarantees: G-0031.8
func TestElicitationCompleteNeedsURLElicitation(t *testing.T) {
	for version, capabilities := range map[string]string{
		protocol.Version20251125: `{}`,
		protocol.Version20250618: `{"elicitation":{"url":{}}}`,
	} {
		sessions := make(chan *server.Session, 1)
		s := newServer(server.Options{SessionContext: func(ctx context.Context, s *server.Session) context.Context {
			sessions <- s
			return ctx
		}})
		w := dial(t, s)
		w.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":` + capabilities + `,"clientInfo":{"name":"c","version":"1"}}}`)
		w.next()
		if err := within(t, sessions).ElicitationComplete(t.Context(), "x"); !errors.Is(err, server.ErrUnsupported) {
			t.Errorf("%s, %s: got %v, want %v", version, capabilities, err, server.ErrUnsupported)
		}
	}
}

// The error for required pages contains the pages that the user must open first.
func TestErrorNamesPagesThatMustBeOpened(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) {
		return "", protocol.URLElicitationRequired("sign in first", signInPage())
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
	var got struct {
		Error struct {
			Code int64           `json:"code"`
			Data json.RawMessage `json:"data"`
		} `json:"error"`
	}
	w.read(&got)
	var data protocol.URLElicitationData
	if got.Error.Code != protocol.CodeURLElicitationRequired || protocol.Unmarshal(got.Error.Data, &data) != nil ||
		len(data.Elicitations) != 1 || data.Elicitations[0].URL != "https://example.com/in" {
		t.Errorf("got %+v", got.Error)
	}
}

// A page that the program asks for without an id gets one, and the question of the program stays as it is.
//
// Guarantees: G-0031.8
func TestPagesWithoutAnID(t *testing.T) {
	own, page, ids := signInPage(), signInPage(), make(chan string, 2)
	page.ElicitationID = ""
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "in"}, func(ctx context.Context, _ struct{}) (string, error) {
		for key, q := range map[string]*protocol.ElicitParams{"own": own, "page": page} {
			if _, err := server.Ask(ctx, protocol.InputRequests{key: q}); err != nil {
				return "", err
			}
		}
		return "", nil
	}, server.Asks(server.Waits, pages))
	o := client.Options{ProtocolVersion: protocol.Version20251125, ElicitURL: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		ids <- p.ElicitationID
		return client.Accept(nil)
	}}
	ours, theirs := inmem.Pipe(inmem.Options{})
	go s.ServeLink(t.Context(), theirs)
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(t.Context(), oneLinkTransport{ours, nil})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "in"}); err != nil || result.IsError {
		t.Fatalf("got %+v, %v, want no error", result.Content[0], err)
	}
	if first, second := <-ids, <-ids; first == "" || second == "" || (first == "page-7") == (second == "page-7") {
		t.Errorf("the client got the ids %q and %q, want page-7 and another one", first, second)
	}
	if page.ElicitationID != "" {
		t.Errorf("the question of the program has got the id %q, want none", page.ElicitationID)
	}
}
