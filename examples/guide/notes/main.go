// Notes is an MCP server of resources and prompts.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A User is a resource of the template users://{id}.
type User struct {
	Name string `json:"name"`
}

// user reads one user. The variables of the URI template are the fields of in.
func user(_ context.Context, in struct {
	ID int `json:"id"`
}) (User, error) {
	if in.ID != 7 {
		return User{}, server.ErrNotFound
	}
	return User{Name: "Ada"}, nil
}

// A Review holds the arguments of the prompt. Bowline completes the values of an enum
// without further code.
type Review struct {
	File  string `json:"file" jsonschema:"the file to review"`
	Style string `json:"style,omitzero" enum:"short,thorough"`
}

func review(_ context.Context, r Review) (string, error) {
	return "Write a " + r.Style + " review of " + r.File + ".", nil
}

// files completes the argument file: typed is what the user has typed so far.
func files(_ context.Context, typed string, _ map[string]string) ([]string, error) {
	var found []string
	for _, name := range []string{"main.go", "main_test.go", "README.md"} {
		if strings.HasPrefix(name, typed) {
			found = append(found, name)
		}
	}
	return found, nil
}

// add adds a resource, a template, a directory of files and a prompt to the server.
func add(s *server.Server, directory *os.Root) {
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config", MIMEType: "text/plain"},
		func(context.Context) (string, error) { return "colour: blue", nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "users://{id}", Name: "user"}, user)
	s.AddFiles("file:///notes/", directory.FS(), server.FilesOptions{})
	server.AddPrompt(s, protocol.Prompt{Name: "review", Description: "Asks for a review."}, review,
		server.Completion{Argument: "file", Values: files})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	directory, err := os.OpenRoot(".")
	if err != nil {
		log.Fatal(err)
	}
	s := server.New(protocol.Implementation{Name: "notes", Version: "1.0"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil }, // everybody may subscribe
	})
	add(s, directory)
	if err := s.Run(ctx, &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
