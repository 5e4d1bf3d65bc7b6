// Caller is a server over HTTP that knows who calls it. Sessions belong to their users.
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var users = map[string]string{"a-secret": "ada", "another": "bob"}

func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if who, known := users[token]; known {
		return &auth.TokenInfo{UserID: who}, nil
	}
	return nil, auth.ErrInvalidToken
}

func whoami(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	text := &mcp.TextContent{Text: r.Extra.TokenInfo.UserID}
	return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil, nil
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "accounts", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "whoami"}, whoami)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	protect := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	http.Handle("/mcp", protect(h))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
