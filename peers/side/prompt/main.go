// Prompt is a server with a prompt whose arguments complete.
package main

import (
	"context"
	"fmt"
	"log"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var styles = []string{"short", "thorough"}

func review(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	file, style := r.Params.Arguments["file"], r.Params.Arguments["style"]
	if file == "" || !slices.Contains(styles, style) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("a file is needed, and a style of %v", styles)}
	}
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "Give a " + style + " review of " + file}},
	}}, nil
}

func complete(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	if r.Params.Ref.Type != "ref/prompt" || r.Params.Ref.Name != "review" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown reference"}
	}
	var values []string
	switch typed := r.Params.Argument.Value; r.Params.Argument.Name {
	case "file":
		var err error
		if values, err = filepath.Glob(typed + "*"); err != nil {
			return nil, err
		}
	case "style":
		for _, style := range styles {
			if strings.HasPrefix(style, typed) {
				values = append(values, style)
			}
		}
	}
	total := len(values)
	values = append([]string{}, values[:min(total, 100)]...)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: total, HasMore: total > 100}}, nil
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "reviews", Version: "1.0"}, &mcp.ServerOptions{CompletionHandler: complete})
	s.AddPrompt(&mcp.Prompt{Name: "review", Arguments: []*mcp.PromptArgument{{Name: "file", Required: true}, {Name: "style", Required: true}}}, review)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
