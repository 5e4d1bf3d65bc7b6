package sharing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A server over HTTP is shared, too: its link has many streams, and headers that say what a
// request is about.
//
// Guarantees: G-0079.9
func TestAServerOverHTTPIsShared(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		s := newServer(server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
		server.AddTool(s, protocol.Tool{Name: "echo"}, func(ctx context.Context, in text) (string, error) {
			server.Progress(ctx, 1, 2, in.Text)
			return in.Text, nil
		})
		handler := streamable.NewHandler(s, streamable.HandlerOptions{})
		at := httptest.NewServer(handler)
		defer at.Close()
		defer handler.Close(hangGuard)
		link, err := (&streamable.Client{URL: at.URL}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t, New(link, Options{Log: slog.New(slog.DiscardHandler)}), nil}
		t.Cleanup(func() {
			if err := w.shared.Close(hangGuard); err != nil {
				t.Error(err)
			}
		})
		var calls sync.WaitGroup
		var all []*events
		for c := range 3 {
			all = append(all, newEvents())
			options := era
			options.OnEvent = all[c].add
			session := w.join(options)
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				calls.Go(func() {
					want, progress := fmt.Sprintf("client %d call %d", c, i), ""
					session := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) { progress = p.Message }})
					got, err := client.Call[string](t.Context(), session, "echo", text{want})
					if got != want || err != nil || progress != want {
						t.Errorf("got %q, %v with progress %q, want %q", got, err, progress, want)
					}
				})
			}
		}
		calls.Wait()
		for _, e := range all {
			for range 100 {
				s.ResourceUpdated("file:///a")
			}
			e.await(t, "updated file:///a")
		}
	})
}
