// Questions is a server whose tool asks its user twice, in every revision.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func form(message, name string, property map[string]any) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: message, RequestedSchema: map[string]any{
		"type": "object", "required": []string{name}, "properties": map[string]any{name: property},
	}}
}

var forms = map[string]*mcp.ElicitParams{
	"size":   form("Which size?", "size", map[string]any{"type": "string", "enum": []string{"small", "large"}}),
	"street": form("Where to?", "street", map[string]any{"type": "string"}),
}

func ask(key, state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: forms[key]}, RequestState: state}
}

func answer(r *mcp.CallToolRequest, key string) (value string, given bool, err error) {
	result, given := r.Params.InputResponses[key].(*mcp.ElicitResult)
	if !given {
		return "", false, nil
	}
	return read(result, key)
}

func read(result *mcp.ElicitResult, key string) (value string, given bool, err error) {
	if result.Action != "accept" {
		return "", true, errors.New("the user gave no answer")
	}
	value, ok := result.Content[key].(string)
	if !ok {
		return "", true, fmt.Errorf("the answer has no %s", key)
	}
	return value, true, nil
}

func orderLegacy(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, any, error) {
	var values []string
	for _, key := range []string{"size", "street"} {
		result, err := r.Session.Elicit(ctx, forms[key])
		if err != nil {
			return nil, nil, err
		}
		value, _, err := read(result, key)
		if err != nil {
			return nil, nil, err
		}
		values = append(values, value)
	}
	return ordered(values[0], values[1]), nil, nil
}

func ordered(size, street string) *mcp.CallToolResult {
	text := fmt.Sprintf("a %s one goes to %s", size, street)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func order(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	if p := r.Session.InitializeParams(); p != nil && p.ProtocolVersion < "2026-07-28" {
		return orderLegacy(ctx, r) // go-sdk bridges one round, and no second
	}
	size := r.Params.RequestState // as the client sends it: it is not sealed
	street, given, err := answer(r, "street")
	if err != nil {
		return nil, nil, err
	}
	if given && (size == "small" || size == "large") {
		return ordered(size, street), nil, nil
	}
	size, given, err = answer(r, "size")
	if err != nil {
		return nil, nil, err
	}
	if !given {
		return ask("size", ""), nil, nil
	}
	if size != "small" && size != "large" {
		return nil, nil, fmt.Errorf("%q is no size", size)
	}
	return ask("street", size), nil, nil
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "order"}, order)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
