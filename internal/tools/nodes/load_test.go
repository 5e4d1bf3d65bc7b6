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
	"github.com/bowline-mcp/bowline/internal/tools/nodes"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A Load counts its calls, and finds what contradicts the ledger.
func TestLoadKeepsItsBooks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "ledger")
	file, err := marks.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	marks.AddTool(s, file)
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(handler)
	defer site.Close()
	defer handler.Close(time.Second)
	for _, added := range []struct{ line, want string }{{"", ""}, {"1-1", "executed 2 times"}, {"9-9", "is no call"}} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := nodes.StartLoad(ctx, nodes.LoadOptions{URL: site.URL, Sessions: 4, Busy: 2, Wait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l.Begin()
		l.All()
		if err := l.Settle(ctx); err != nil {
			t.Error(err)
		}
		if added.line != "" {
			if _, err := file.WriteString(added.line + "\n"); err != nil {
				t.Fatal(err)
			}
		}
		books, err := l.Stop(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := strings.Join(books.Wrong, "\n"); (added.want == "") != (wrong == "") || !strings.Contains(wrong, added.want) {
			t.Errorf("got %q, want %q", wrong, added.want)
		}
		if books.Lost != nil || books.Calls < 4 || books.Answered != books.Calls || books.Failed != nil {
			t.Errorf("the books say %+v", books)
		}
		if median, longest := books.Outage(); median <= 0 || longest < median {
			t.Errorf("outages of %v and %v", median, longest)
		}
	}
}
