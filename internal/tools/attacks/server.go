//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// The two servers.
const (
	bowline = "bowline"
	control = "control"
)

// largeAnswer is the size of the text that the tool large returns.
const largeAnswer = 4 << 20

// serve serves the tools until stdin ends. It prints its address.
func serve(ctx context.Context, which string, stdin io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		stop()
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /memory", memory)
	switch which {
	case bowline:
		s := server.New(protocol.Implementation{Name: "attacked", Version: "1"}, server.Options{
			Tasks:       new(server.TaskOptions),
			OnSubscribe: func(context.Context, string) error { return nil },
		})
		type text struct {
			Text string `json:"text"`
		}
		server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in text) (string, error) { return in.Text, nil })
		server.AddTool(s, protocol.Tool{Name: "any"}, func(_ context.Context, in map[string]any) (string, error) { return fmt.Sprint(len(in)), nil })
		server.AddTool(s, protocol.Tool{Name: "sleep"}, func(ctx context.Context, _ text) (string, error) { return "", wait.Sleep(ctx, time.Second) })
		server.AddTool(s, protocol.Tool{Name: "large"}, func(context.Context, text) (string, error) { return strings.Repeat("x", largeAnswer), nil })
		server.AddTool(s, protocol.Tool{Name: "later", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ text) (string, error) { return "", wait.Sleep(ctx, time.Minute) })
		server.AddTool(s, protocol.Tool{Name: "asks"}, func(ctx context.Context, _ text) (string, error) { return "", server.Confirm(ctx, "Really?") },
			server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
		defer closeNow(s)
		h := streamable.NewHandler(s, streamable.HandlerOptions{})
		defer h.Close(0)
		mux.Handle("/mcp", h)
		events := sse.NewHandler(s, sse.HandlerOptions{})
		defer events.Close(0)
		mux.Handle("/sse", events)
	case control:
		mux.HandleFunc("POST /mcp", plain)
	default:
		return fmt.Errorf("there is no server %q", which)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, listener.Addr())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// closeNow closes a server without waiting for its tasks.
func closeNow(s *server.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(ctx) // it reports what it has cut off
}

// plain answers what a Bowline server answers, with encoding/json.
func plain(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if bytes.HasPrefix(raw, []byte("[")) {
		var batch []json.RawMessage
		if err := json.Unmarshal(raw, &batch); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(batch) // the client may be gone
		return
	}
	var call struct {
		ID     any
		Method string
		Params struct {
			Name      string
			Arguments map[string]any
		}
	}
	if err := json.Unmarshal(raw, &call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, _ := call.Params.Arguments["text"].(string)
	switch call.Params.Name {
	case "sleep":
		_ = wait.Sleep(r.Context(), time.Second)
	case "large":
		text = strings.Repeat("x", largeAnswer)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}})
}

// memory prints the bytes of the live heap, and of the process.
func memory(w http.ResponseWriter, _ *http.Request) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	rss := 0
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
			_, _ = fmt.Sscan(after, &rss)
		}
	}
	fmt.Fprintln(w, m.HeapAlloc, rss<<10)
}
