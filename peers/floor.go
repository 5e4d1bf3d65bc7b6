package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// A floorCall is a JSON-RPC request, and its answer, with the least of MCP: what
// a call over HTTP costs before anything is made safe.
type floorCall struct {
	JSONRPC string       `json:"jsonrpc"`
	ID      int          `json:"id"`
	Method  string       `json:"method,omitempty"`
	Params  *floorParams `json:"params,omitempty"`
	Result  *floorResult `json:"result,omitempty"`
}

type floorParams struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

type floorResult struct {
	Content []floorContent `json:"content"`
}

type floorContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func handleFloor([]string) (http.Handler, func(context.Context) error) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		var call floorCall
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, _ := call.Params.Arguments["message"].(string)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(floorCall{JSONRPC: "2.0", ID: call.ID, Result: &floorResult{[]floorContent{{"text", text}}}})
	}
	return http.HandlerFunc(echo), func(context.Context) error { return nil }
}

// A floorSession can call, and close.
type floorSession struct {
	Session
	client *http.Client
	url    string
}

func connectFloor(_ context.Context, server Endpoint, _ string) (Session, error) {
	return floorSession{client: &http.Client{Transport: newPool()}, url: server.URL}, nil
}

func (s floorSession) CallTool(ctx context.Context, call Call) (*Result, error) {
	body, err := json.Marshal(floorCall{JSONRPC: "2.0", ID: 1, Method: "tools/call", Params: &floorParams{call.Tool, call.Arguments}})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer floorCall
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	return &Result{Text: answer.Result.Content[0].Text}, nil
}

func (s floorSession) Close(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}
