package main

import (
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNotes(t *testing.T) {
	directory, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	s := server.New(protocol.Implementation{Name: "notes", Version: "1.0"}, server.Options{})
	add(s, directory)
	session := mcptest.Connect(t, s, mcptest.Options{})
	read, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "users://7"})
	if err != nil || len(read.Contents) != 1 || *read.Contents[0].Text != `{"name":"Ada"}` {
		t.Errorf("got %+v, %v", read, err)
	}
	if _, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "users://8"}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a user that does not exist: got %v", err)
	}
}
