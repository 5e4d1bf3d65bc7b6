package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// An endlessTripper answers with a status, and with bodies that never end.
type endlessTripper func(*http.Request) (status int, mediaType, text string)

func (answer endlessTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	status, mediaType, text := answer(r)
	body, more := io.Pipe()
	context.AfterFunc(r.Context(), func() { more.CloseWithError(r.Context().Err()) })
	go func() { // ends when the body is closed
		_, _ = io.WriteString(more, text)
	}()
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {mediaType}}, Body: body, Request: r}, nil
}

func openEndless(t *testing.T, answer endlessTripper) *testReceiver {
	return open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: answer}})
}

// A server that accepts messages and does not end its responses delays each later message
// by a second at most.
//
// Guarantees: G-0022.2
func TestAcceptedMessageWithoutAnEndDelaysLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, took := time.Now(), make(chan time.Duration, 10)
		r := openEndless(t, func(*http.Request) (int, string, string) {
			took <- time.Since(begun)
			return http.StatusAccepted, "text/plain", "accepted"
		})
		for range 3 {
			r.send(0, notification("n"))
		}
		for n := range 3 {
			if after, most := <-took, time.Duration(n)*time.Second; after > most {
				t.Errorf("message %d was posted after %v, want at most %v", n, after, most)
			}
		}
	})
}

// A server has a second to end its stream after the answer, so that the connection can be used again. After that it is cut off.
//
// Guarantees: G-0022.21
func TestAStreamThatGoesOnAfterItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, cut := time.Now(), make(chan time.Duration, 1)
		r := openEndless(t, func(req *http.Request) (int, string, string) {
			context.AfterFunc(req.Context(), func() { cut <- time.Since(begun) })
			return http.StatusOK, web.TypeEvents, "data: " + result(1) + "\n\n"
		})
		r.wantFrame(0, r.call(1, 1), result(1), true)
		if after := <-cut; after != web.EndTime {
			t.Errorf("the stream was cut off after %v, want %v", after, web.EndTime)
		}
	})
}

// A refusal without an end is a refusal.
//
// Guarantees: G-0022.1
func TestRefusalWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := openEndless(t, func(*http.Request) (int, string, string) { return http.StatusBadRequest, "text/plain", "no tools here" })
		r.call(1, 1)
		f := r.failure(0)
		var refused *transport.StatusError
		if !errors.As(f.Err, &refused) || refused.Status != 400 || refused.Body != "no tools here" || !f.Unsent {
			t.Errorf("got %+v, want the refusal with its text, unsent", f)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the call failed after %v, want at most a second", took)
		}
	})
}

// A server that refuses initialize without an end is asked for HTTP+SSE all the same.
//
// Guarantees: G-0034.9
func TestRefusalOfInitializeWithoutAnEndCausesFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posted := make(chan string, 10)
		r := openEndless(t, func(req *http.Request) (int, string, string) {
			switch {
			case req.Method == http.MethodGet:
				return http.StatusOK, web.TypeEvents, olderEndpoint
			case strings.HasPrefix(req.URL.Path, "/messages"):
				posted <- req.URL.Path
				return http.StatusAccepted, "text/plain", ""
			default:
				return http.StatusMethodNotAllowed, "text/plain", "method not allowed"
			}
		})
		r.request(1, 1, request(1, protocol.MethodInitialize, ""))
		if got := <-posted; got != "/messages" {
			t.Errorf("initialize was posted to %s, want /messages", got)
		}
	})
}
