//go:build npm

package peers

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// An npmServer is a published server over stdio. Its features have other names.
type npmServer struct {
	sdk     npmPackage
	command []string
	root    string // of the client
	checks  []npmCheck
}

// An npmCheck is a row. The result of run must contain want.
type npmCheck struct {
	name, want string
	run        func(context.Context, *featuredBowlineClient) (string, error)
}

func callNamed(tool string, arguments map[string]any) func(context.Context, *featuredBowlineClient) (string, error) {
	return func(ctx context.Context, c *featuredBowlineClient) (string, error) {
		return client.Call[string](ctx, c.session, tool, arguments)
	}
}

const everyText = "demo://resource/dynamic/text/1"

func npmServers(root string) []npmServer {
	return []npmServer{
		{everything, []string{"node", everything.path("dist/index.js"), "stdio"}, root, []npmCheck{
			{"resources/read of a resource", "#", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				return c.read(ctx, "demo://resource/static/document/features.md")
			}},
			{"resources/read of a template", "Resource 1", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				return c.read(ctx, everyText)
			}},
			{"resources/subscribe, updated", everyText, updatedByEverything},
			{"prompts/get", "Rome", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				return c.prompt(ctx, "args-prompt", map[string]string{"city": "Rome"})
			}},
			{"completion/complete", "Engineering", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				values, err := c.complete(ctx, "completable-prompt", "department", "Eng")
				return fmt.Sprint(values), err
			}},
			{"structured content", "82", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				weather, err := client.Call[map[string]any](ctx, c.session, "get-structured-content", map[string]any{"location": "Chicago"})
				return fmt.Sprint(weather["humidity"]), err
			}},
			{"elicitation", "Ada", callNamed("trigger-elicitation-request", nil)},
			{"sampling", "hello", callNamed("trigger-sampling-request", map[string]any{"prompt": "hi"})},
			{"roots", root, awaitCall("get-roots-list", root)},
			{"logging", "level", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				if err := c.session.SetLogLevel(ctx, protocol.LogDebug); err != nil {
					return "", err
				}
				if _, err := c.call(ctx, "toggle-simulated-logging"); err != nil {
					return "", err
				}
				for { // it also tells what it was asked for before
					message, err := awaitMessage(ctx, c.messages)
					if err != nil || strings.Contains(message, "level") {
						return message, err
					}
				}
			}},
		}},
		{filesystem, []string{"node", filesystem.path("dist/index.js")}, root, []npmCheck{
			{"roots", root, awaitCall("list_allowed_directories", root)},
			{"structured content", "hello", func(ctx context.Context, c *featuredBowlineClient) (string, error) {
				file, err := client.Call[struct {
					Content string `json:"content"`
				}](ctx, c.session, "read_text_file", map[string]any{"path": filepath.Join(root, "hello.txt")})
				return file.Content, err
			}},
		}},
	}
}

// awaitCall calls until the answer names the root: these servers ask for the roots once
// they are initialized, and a call may come earlier.
func awaitCall(tool, root string) func(context.Context, *featuredBowlineClient) (string, error) {
	return func(ctx context.Context, c *featuredBowlineClient) (string, error) {
		for {
			text, err := c.allText(ctx, tool)
			if err != nil || strings.Contains(text, root) || ctx.Err() != nil {
				return text, err
			}
		}
	}
}

// allText returns the text of a tool's result, with or without an output schema.
func (c *featuredBowlineClient) allText(ctx context.Context, tool string) (string, error) {
	result, err := c.session.CallTool(ctx, &protocol.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	return result.Content.Text(), nil
}

// updatedByEverything subscribes to a resource, makes the server send updates, and returns
// the URI of the updated resource.
func updatedByEverything(ctx context.Context, c *featuredBowlineClient) (string, error) {
	if err := c.session.Subscribe(ctx, &protocol.SubscribeParams{URI: everyText}); err != nil {
		return "", err
	}
	if _, err := c.call(ctx, "toggle-subscriber-updates"); err != nil {
		return "", err
	}
	return awaitMessage(ctx, c.updates)
}

// npmTables run each server in the revisions that it speaks. Root is a folder that the servers may read.
func npmTables(t *testing.T, root string) string {
	revisions := featuredRevisions[:2]
	var tables strings.Builder
	for _, s := range npmServers(root) {
		cells := make([][]string, len(s.checks))
		for _, revision := range revisions {
			t.Run(s.sdk.title()+"/"+revision, func(t *testing.T) { s.check(t, revision, cells) })
		}
		fmt.Fprintf(&tables, "\n## %s as the server, Bowline as the client, over stdio\n\n", s.sdk.title())
		tables.WriteString(heading(append([]string{"Feature"}, revisions...)))
		for i, check := range s.checks {
			tables.WriteString(row(append([]string{check.name}, cells[i]...)))
		}
	}
	return tables.String()
}

func (s *npmServer) check(t *testing.T, revision string, cells [][]string) {
	ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
	defer cancel()
	c, err := connectBowlineUser(ctx, Endpoint{Command: s.command}, revision, bowlineUser{form: map[string]any{"name": "Ada"}, root: "file://" + s.root})
	if err != nil {
		t.Fatal(err)
	}
	for i, check := range s.checks {
		got, err := check.run(ctx, c)
		if err != nil || !strings.Contains(got, check.want) {
			t.Errorf("%s: got %q, %v; want %q", check.name, got, err, check.want)
		}
		cells[i] = append(cells[i], Held)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}
