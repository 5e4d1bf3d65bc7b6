package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// languageServer implements a part of the Language Server Protocol: it opens the
// document of a didOpen notification, sends a diagnostic, requests the configuration,
// and answers hovers. It crashes at the method crash.
func languageServer() {
	in := textproto.NewReader(bufio.NewReader(os.Stdin))
	say := func(format string, args ...any) {
		body := fmt.Sprintf(format, args...)
		fmt.Printf("Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	ready := false
	for {
		header, err := in.ReadMIMEHeader()
		if err != nil {
			return
		}
		length, err := strconv.Atoi(header.Get("Content-Length"))
		if err != nil {
			panic(err)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(in.R, body); err != nil {
			return
		}
		var m struct {
			ID             json.RawMessage
			Method         string
			Params, Result json.RawMessage
		}
		if err := json.Unmarshal(body, &m); err != nil {
			panic(err)
		}
		switch m.Method {
		case "initialized":
			ready = true
		case "initialize":
			say("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": %s,\n  \"result\": {\"capabilities\": {\"hoverProvider\": true}}\n}\n", m.ID)
		case "textDocument/didOpen":
			say(`{"jsonrpc":"2.0","id":"cfg","method":"workspace/configuration","params":{"items":[]}}`)
		case "":
			say(`{"jsonrpc":"2.0","method":"textDocument/publishDiagnostics","params":%s}`, m.Result)
		case "textDocument/hover":
			if !ready {
				panic("request before the handshake")
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, m.Params)
		case "crash":
			os.Exit(1)
		}
	}
}

// An lspClient handles the messages to the client.
type lspClient struct{ diagnostics chan string }

func (e *lspClient) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method != "workspace/configuration" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: in.Method}
	}
	return json.RawMessage(`["configured"]`), nil
}

func (e *lspClient) ServeNotification(_ context.Context, in *conn.Incoming) {
	e.diagnostics <- in.Method + " " + string(in.Params)
}

// A Conn can supervise a server of another protocol: requests work in both directions,
// and the server is started again after a crash.
//
// Guarantees: G-0008.6
func TestLanguageServer(t *testing.T) {
	server := roleCommand(t, "language server")
	server.Framing = ContentLength
	e := &lspClient{diagnostics: make(chan string, 1)}
	c := conn.New(server, conn.Options{
		Handler: e,
		Handshake: func(ctx context.Context, i *conn.Incarnation) error {
			if _, err := i.Call(ctx, conn.Request{Method: "initialize", Params: json.RawMessage(`{"capabilities":{}}`)}); err != nil {
				return err
			}
			return i.Notify(ctx, "initialized", json.RawMessage(`{}`))
		},
		Tuning: conn.Tuning{
			Liveness:   -1,
			BackoffMin: time.Millisecond,
		},
	})
	if err := c.Start(t.Context(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Stop()
		<-c.Done()
	}()
	for range 2 {
		const text = `{"position":{"line":1}, "of": "two\nlines"}`
		result, err := c.Call(t.Context(), conn.Request{Method: "textDocument/hover", Params: json.RawMessage(text), WaitForReady: true, Timeout: hangGuard})
		if err != nil || string(result) != text {
			t.Fatalf("hover: got %s, %v, want %v", result, err, text)
		}
		if err := c.Notify(t.Context(), "textDocument/didOpen", json.RawMessage(`{"textDocument":{"uri":"file:///a"}}`)); err != nil {
			t.Fatal(err)
		}
		if got, _ := receive(t, e.diagnostics, "diagnostic"); got != `textDocument/publishDiagnostics ["configured"]` {
			t.Errorf("got the diagnostic %s, want %q", got, `textDocument/publishDiagnostics ["configured"]`)
		}
		var failed *conn.CallError
		if _, err := c.Call(t.Context(), conn.Request{Method: "crash"}); !errors.As(err, &failed) || failed.Delivery != conn.Unknown {
			t.Errorf("the crash: got %v, want a *conn.CallError and failed.Delivery == %v", err, conn.Unknown)
		}
	}
}
