package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const callLong = `Call one tool of a server and print what it answers.

Arguments are one JSON object, or KEY=VALUE pairs, or - to read a JSON object
from standard input. If the tool's schema expects a string, VALUE is text.
Otherwise it is JSON: count=3, verbose=true, tags='["a","b"]'. With KEY:=JSON the
value is always JSON. All arguments are checked against the schema before the
call.

Text is printed unchanged, other content in a readable form, and structured
content if there is no text. On a terminal, control characters are replaced.
With --json the whole result is one JSON document. Progress goes to standard
error. If the tool fails, its message goes to standard error and the exit status
is 1.

Ctrl-C cancels the call at the server. If the server turns the call into a task,
the command waits until the task has ended, or until --timeout if you set it.
With --detach it prints the id of the task instead, for "bowline tasks".`

const callExample = `  # Arguments by name; numbers are numbers because the schema says so
  bowline call add a=1 b=2.5 --command 'bowline serve --stdio'

  # Arguments as JSON, the whole result as JSON
  bowline call echo '{"message": "hello"}' --json --command 'bowline serve --stdio'

  # A server over HTTP
  bowline call echo message=hello --url http://127.0.0.1:8080/mcp

  # A server from the mcp.json of a desktop program
  bowline call list_directory path=. --mcp-config ~/.config/host/mcp.json --server filesystem

  # A slow tool: no timeout, progress on standard error
  bowline call slow seconds=90 --timeout 0 --command 'bowline serve --stdio'`

func newCall() *cobra.Command {
	var detached bool
	command := withServer(&cobra.Command{
		Use:        "call TOOL [JSON | - | KEY=VALUE ...]",
		SuggestFor: []string{"run", "exec", "invoke", "tool", "call-tool"},
		Short:      "Call a tool of a server",
		Long:       callLong,
		Example:    callExample,
		Args:       atLeast("the tool to call"),
	}, toolArguments, func(cmd *cobra.Command, args []string) (action, error) {
		given, err := readArguments(cmd.Context(), args[1:], cmd.InOrStdin())
		return func(ctx context.Context, r *run) error {
			if detached {
				return detach(ctx, r, args[0], given)
			}
			r.limit.awaitTask()
			result, err := callTool(ctx, r, args[0], given)
			if err != nil {
				return explainTask(err, "it was cancelled. To let it continue, use --detach, or a longer --timeout")
			}
			return printResult(r, args[0], result)
		}, err
	})
	command.Flags().BoolVar(&detached, "detach", false, "do not wait for a task; print its id instead")
	return command
}

func callTool(ctx context.Context, r *run, name string, given arguments) (*protocol.CallToolResult, error) {
	tool, err := findTool(ctx, r.session, name)
	if err != nil {
		return nil, err
	}
	arguments, err := given.fit(ctx, tool)
	if err != nil {
		return nil, &failure{status: exitUsage, err: err}
	}
	progress := newProgress(r.err)
	defer progress.end()
	options := client.CallOptions{Timeout: -1, OnProgress: progress.show}
	return r.session.With(options).CallTool(ctx, &protocol.CallToolParams{Name: name, Arguments: arguments})
}

// findTool searches all pages for a tool. Its error lists the names of the
// tools.
func findTool(ctx context.Context, session *client.Session, name string) (*protocol.Tool, error) {
	var names []string
	for tool, err := range session.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		if tool.Name == name {
			return tool, nil
		}
		names = append(names, line(tool.Name))
	}
	return nil, &failure{status: exitUsage, err: fmt.Errorf("the server has no tool %q; %s", name, suggest.Among(name, names))}
}

// printResult prints the result of a tool. It returns an error if the tool failed.
func printResult(r *run, tool string, result *protocol.CallToolResult) error {
	if r.json {
		if err := printJSON(r.out, result); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	writeResult(&text, result)
	if result.IsError {
		return &failure{status: exitToolFailed, err: fmt.Errorf("tool %q failed: %s", tool, bytes.TrimSpace(text.Bytes()))}
	}
	if r.json {
		return nil
	}
	_, err := text.WriteTo(r.out)
	return err
}

// writeResult writes a result for people: the blocks, and the structured
// content if there is no text.
func writeResult(out *bytes.Buffer, result *protocol.CallToolResult) {
	hasText := false
	for _, block := range result.Content {
		if _, ok := block.(*protocol.TextContent); ok {
			hasText = true
		}
		writeLine(out, describe(block))
	}
	if !hasText && len(result.StructuredContent) > 0 {
		writeLine(out, compact(result.StructuredContent))
	}
}

// writeLine writes text unchanged, and adds a line break if the text does not
// end with one.
func writeLine(out *bytes.Buffer, text string) {
	out.WriteString(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		out.WriteByte('\n')
	}
}

// describe returns a block of content in a readable form. Bytes are only
// counted: --json has them.
func describe(block protocol.Content) string {
	switch b := block.(type) {
	case *protocol.TextContent:
		return b.Text
	case *protocol.ImageContent:
		return flat(fmt.Sprintf("[image: %s, %d bytes]", b.MIMEType, len(b.Data)))
	case *protocol.AudioContent:
		return flat(fmt.Sprintf("[audio: %s, %d bytes]", b.MIMEType, len(b.Data)))
	case *protocol.EmbeddedResource:
		return describeResource(&b.Resource)
	case *protocol.ResourceLink:
		return flat(fmt.Sprintf("[resource link: %s, %s]", b.Name, b.URI))
	case *protocol.UnknownContent:
		return compact(b.Raw)
	default:
		return fmt.Sprintf("[%T]", block)
	}
}

func describeResource(r *protocol.ResourceContents) string {
	if r.Text == nil {
		return flat(fmt.Sprintf("[resource: %s, %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob)))
	}
	return flat(fmt.Sprintf("[resource: %s, %s]", r.URI, r.MIMEType)) + "\n" + *r.Text
}

// compact returns JSON in one line.
func compact(raw json.RawMessage) string {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return string(raw) // it was decoded before, so it is valid JSON
	}
	return line.String()
}

// printJSON prints one document, indented.
func printJSON(out io.Writer, value any) error {
	raw, err := protocol.Marshal(value)
	if err != nil {
		return err
	}
	var document bytes.Buffer
	if err := json.Indent(&document, raw, "", "  "); err != nil {
		return err
	}
	document.WriteByte('\n')
	_, err = document.WriteTo(out)
	return err
}
