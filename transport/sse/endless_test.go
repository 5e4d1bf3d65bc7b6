package sse

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// An endlessTripper opens a stream, and answers each POST with a body that never ends.
type endlessTripper func(post *http.Request) (status int, text string)

func (answer endlessTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	status, kind, text := http.StatusOK, web.TypeEvents, endpoint
	if r.Method == http.MethodPost {
		defer r.Body.Close()
		kind = "text/plain"
		status, text = answer(r)
	}
	body, more := io.Pipe()
	context.AfterFunc(r.Context(), func() { more.CloseWithError(r.Context().Err()) })
	go func() { // ends when the body is closed
		_, _ = io.WriteString(more, text)
	}()
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: body, Request: r}, nil
}

// A server that accepts messages and does not end its responses delays each later message
// by a second at most. Such a refusal is a refusal.
//
// Guarantees: G-0034.4, G-0034.5
func TestResponsesWithoutAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begun, took := time.Now(), make(chan time.Duration, 3)
		link, r := open(t, &Client{URL: "http://host/sse", HTTP: &http.Client{Transport: endlessTripper(func(*http.Request) (int, string) {
			took <- time.Since(begun)
			if len(took) == cap(took) {
				return http.StatusBadRequest, "no"
			}
			return http.StatusAccepted, "accepted"
		})}})
		for n := range 2 {
			if err := link.Send(notification(0)); err != nil {
				t.Fatalf("message %d: %v", n, err)
			}
		}
		if err := link.Send(request(1)); err != nil {
			t.Fatal(err)
		}
		if f := r.awaitFailure(t); f.Tag != 1 || !f.Unsent {
			t.Errorf("got %+v, want a refusal of the request", f)
		}
		for n := range 3 {
			if after, most := <-took, time.Duration(n)*time.Second; after > most {
				t.Errorf("message %d was posted after %v, want at most %v", n, after, most)
			}
		}
	})
}
