package nodes_test

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/nodes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A Load counts its calls, and finds what contradicts the ledger.
func TestLoadKeepsItsBooks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "ledger")
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	if err := nodes.AddLedger(s, path); err != nil {
		t.Fatal(err)
	}
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(handler)
	defer site.Close()
	defer handler.Close(time.Second)
	for _, added := range []struct{ line, want string }{{"", ""}, {"1-1", "executed 2 times"}} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := nodes.StartLoad(ctx, nodes.LoadOptions{URL: site.URL, Sessions: 4, Busy: 2, Wait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		took, err := l.Recover(ctx)
		if err != nil || len(took) != 4 {
			t.Errorf("the sessions took %v: %v", took, err)
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if added.line != "" {
			if _, err := file.WriteString(added.line + "\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		books, err := l.Stop(ctx, path)
		switch {
		case added.want == "" && err != nil:
			t.Error(err)
		case added.want != "" && (err == nil || !strings.Contains(err.Error(), added.want)):
			t.Errorf("got %v, want %q", err, added.want)
		}
		if books.Lost != 0 || len(books.Counts) != 1 || books.Counts[ledger.Answered()] < 4 {
			t.Errorf("the books say %+v", books)
		}
	}
}
