package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// A floorHandler serves over net/http. Its sessions are names in a set.
type floorHandler struct {
	server *floorServer

	mu       sync.Mutex
	sessions map[string]struct{}
}

func newFloorHandler(string) http.Handler {
	return &floorHandler{server: newFloorServer(serving{}), sessions: make(map[string]struct{})}
}

func (h *floorHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet { // a stream that stays open
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	request, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, _, err := h.server.answer(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if r.Header.Get("Mcp-Session-Id") == "" {
		h.mu.Lock()
		name := strconv.Itoa(len(h.sessions) + 1)
		h.sessions[name] = struct{}{}
		h.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", name)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(answer)
}

// A floorPoster posts to a floorHandler.
type floorPoster struct {
	client  *http.Client
	url     string
	session string
}

func floorOverHTTP(ctx context.Context, _, url string) (*session, error) {
	p := &floorPoster{client: &http.Client{Transport: newPool()}, url: url}
	if _, err := p.post(ctx, &floorMessage{JSONRPC: "2.0", ID: 1, Method: "initialize"}); err != nil {
		return nil, err
	}
	return &session{
		echo: func(text string) call { return func(ctx context.Context) error { return p.echo(ctx, text) } },
		close: func() error {
			p.client.CloseIdleConnections()
			return nil
		},
	}, nil
}

func (p *floorPoster) echo(ctx context.Context, text string) error {
	result, err := p.post(ctx, floorEchoRequest(1, text))
	if err != nil {
		return err
	}
	return sameText(result.Content[0].Text, text)
}

func (p *floorPoster) post(ctx context.Context, message *floorMessage) (*floorResult, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if p.session != "" {
		request.Header.Set("Mcp-Session-Id", p.session)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if p.session == "" {
		p.session = response.Header.Get("Mcp-Session-Id")
	}
	var answer floorMessage
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	return answer.Result, nil
}
