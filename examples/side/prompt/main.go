// Prompt is a server with a prompt whose arguments complete.
package main

import (
	"context"
	"log"
	"path/filepath"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type request struct {
	File  string `json:"file"`
	Style string `json:"style" enum:"short,thorough"`
}

func review(_ context.Context, r request) (string, error) {
	return "Give a " + r.Style + " review of " + r.File, nil
}

func files(_ context.Context, typed string, _ map[string]string) ([]string, error) {
	return filepath.Glob(typed + "*")
}

func main() {
	s := server.New(protocol.Implementation{Name: "reviews", Version: "1.0"}, server.Options{})
	server.AddPrompt(s, protocol.Prompt{Name: "review"}, review, server.Completion{Argument: "file", Values: files})
	if err := s.Run(context.Background(), &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
