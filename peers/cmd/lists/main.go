// Command lists starts the servers of an mcp.json file and writes the tools of all, one to a line: what the search of a
// gateway knows of each, and how many bytes its definition has. The measurements of ADR-0101 are made with it:
//
//	go run ./cmd/lists cmd/lists/servers.json >../gateway/internal/search/testdata/tools.jsonl
//	(cd .. && go test ./gateway/internal/search -run TestTableOfTheADR -update)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
)

// patience is how long all servers may take to start.
const patience = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "lists: name an mcp.json file")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lists:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, to io.Writer) (err error) {
	file, err := mcpjson.Load(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set := sessions.New(protocol.Implementation{Name: "lists", Version: "1"}, sessions.Options{
		Client: asked(),
	})
	defer func() { err = errors.Join(err, set.Close(context.WithoutCancel(ctx))) }()
	if _, err := set.Apply(ctx, file); err != nil {
		return err
	}
	if err := set.AwaitReady(ctx); err != nil {
		return err
	}
	lines := json.NewEncoder(to)
	lines.SetEscapeHTML(false)
	for session := range set.Sessions() {
		for tool, err := range session.Tools(ctx) {
			if err != nil {
				return fmt.Errorf("list the tools of %s: %w", session.Name(), err)
			}
			if err := write(lines, session.Name(), tool); err != nil {
				return err
			}
		}
	}
	return nil
}

// asked returns the options of a client that servers may ask anything, since some have more tools for such a client. It answers nothing.
func asked() client.Options {
	errNobody := errors.New("nobody is here")
	elicit := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return nil, errNobody
	}
	return client.Options{
		Conn:   conn.Tuning{InitTimeout: patience}, // npx installs while it waits
		Elicit: elicit, ElicitURL: elicit,
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return nil, errNobody
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
	}
}

// write writes what the search of a gateway knows of a tool.
func write(to *json.Encoder, server string, tool *protocol.Tool) error {
	definition, err := protocol.Marshal(tool)
	if err != nil {
		return err
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
		return fmt.Errorf("read the schema of %s of %s: %w", tool.Name, server, err)
	}
	return to.Encode(struct {
		Server      string   `json:"server"`
		Name        string   `json:"name"`
		Title       string   `json:"title,omitempty"`
		Description string   `json:"description,omitempty"`
		Parameters  []string `json:"parameters,omitempty"`
		Bytes       int      `json:"bytes"` // of the definition
	}{server, tool.Name, tool.Title, tool.Description, slices.Sorted(maps.Keys(schema.Properties)), len(definition)})
}
