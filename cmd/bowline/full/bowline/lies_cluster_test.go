//go:build cluster && unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/tools/nodes"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
)

// A run of gateways with users is found wrong if these lie to their clients, run what must run once at each of them, or leave a call out of the audit trail, and else it is not.
func TestLiesOfGatewaysAreFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	behind := filepath.Join(t.TempDir(), behindGateways)
	if err := os.Symlink(self, behind); err != nil {
		t.Fatal(err)
	}
	t.Setenv(role, "command")
	for name, c := range map[string]struct {
		lies nodes.Lies
		want string // in what is wrong; "": nothing is
	}{
		"none":                           {nodes.Lies{}, ""},
		"a server of which there is one": {nodes.Lies{Everywhere: true}, "another process runs"},
		"a call is made twice":           {nodes.Lies{Between: between(requestTwice)}, "executed 2 times"},
		"a call is answered twice":       {nodes.Lies{Between: answersTwice}, "were answered already"},
		"the answer to another call":     {nodes.Lies{Between: between(otherAnswer)}, "has the answer"},
		"a call that was never made":     {nodes.Lies{Between: between(inventedAnswer)}, "it was answered, and not executed"},
		"a lost session":                 {nodes.Lies{Between: between(lostSession)}, "was lost: status 404"},
		"a record that is not written":   {nodes.Lies{Trail: withoutOne("answered")}, "and no audit trail says so"},
		"a persona that forbids nothing": {nodes.Lies{Permits: true}, "and a persona forbids it"},
		"a refusal that is not written":  {nodes.Lies{Trail: withoutOne("denied")}, "0 records say that it was denied"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
			defer cancel()
			row, err := nodes.Chaos(ctx, nodes.ChaosOptions{
				Site:    nodes.SiteOptions{Setup: nodes.OneServer, Bowline: self, Folder: t.TempDir(), Child: behind, Lies: c.lies},
				Clients: 6, Wait: 20 * time.Millisecond, Log: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			if wrong := strings.Join(row.Wrong, "\n"); (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
				t.Errorf("got %q, want %q", wrong, c.want)
			}
			if row.Answered == 0 {
				t.Error("no call was answered")
			}
		})
	}
}

// A way is what stands between a client and gateways.
type way func(r *http.Request) (*http.Response, error)

func (w way) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// between lies about one call, the tenth of all that no persona forbids, and leaves the others alone.
func between(lie func(next http.RoundTripper, r *http.Request, call []byte) (*http.Response, error)) func(http.RoundTripper) http.RoundTripper {
	var calls atomic.Int32
	return func(next http.RoundTripper) http.RoundTripper {
		return posts(next, func(r *http.Request, body []byte) (*http.Response, error) {
			if !isCall(body) || calls.Add(1) != 10 {
				return next.RoundTrip(r)
			}
			return lie(next, r, body)
		})
	}
}

// posts passes messages to a function, with their text, and the other requests on.
func posts(next http.RoundTripper, each func(r *http.Request, body []byte) (*http.Response, error)) http.RoundTripper {
	return way(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPost {
			return next.RoundTrip(r)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		return each(withBody(r, body), body)
	})
}

// isCall reports whether a message calls a tool that no persona forbids.
func isCall(message []byte) bool {
	return bytes.Contains(message, []byte(`"tools/call"`)) && !bytes.Contains(message, []byte(child.Erase))
}

func withBody(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

// changed returns a response with another body.
func changed(response *http.Response, err error, change func(string) string) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	said := change(string(text))
	response.Body, response.ContentLength = io.NopCloser(strings.NewReader(said)), int64(len(said))
	response.Header.Del("Content-Length")
	return response, nil
}

// requestTwice makes a call again, in a request of its own: a server runs no request of a session twice.
func requestTwice(next http.RoundTripper, r *http.Request, call []byte) (*http.Response, error) {
	again := bytes.Replace(call, []byte(`"id":`), []byte(`"id":1000`), 1)
	first, err := next.RoundTrip(withBody(r, again))
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, first.Body)
	first.Body.Close()
	if err != nil {
		return nil, err
	}
	return next.RoundTrip(withBody(r, call))
}

// answersTwice has each session get the answer to its second call once more, before that to its third.
func answersTwice(next http.RoundTripper) http.RoundTripper {
	var calls int
	var before string
	return posts(next, func(r *http.Request, body []byte) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if !isCall(body) {
			return response, err
		}
		calls++ // a session makes one at a time
		return changed(response, err, func(text string) string {
			if before, text = text, before; calls != 3 {
				return before
			}
			if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") { // which has one answer
				response.Header.Set("Content-Type", "text/event-stream")
				text, before = "data: "+text+"\n\n", "data: "+before+"\n\n"
			}
			return text + before
		})
	})
}

func otherAnswer(next http.RoundTripper, r *http.Request, call []byte) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	return changed(response, err, func(text string) string { return strings.ReplaceAll(text, idIn(call), "0-0") })
}

func inventedAnswer(next http.RoundTripper, r *http.Request, call []byte) (*http.Response, error) {
	never := bytes.ReplaceAll(call, []byte(`"`+idIn(call)+`"`), []byte(`"elsewhere"`))
	response, err := next.RoundTrip(withBody(r, never))
	return changed(response, err, func(text string) string { return strings.ReplaceAll(text, "elsewhere", idIn(call)) })
}

func lostSession(_ http.RoundTripper, r *http.Request, _ []byte) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// idIn returns the id that a call has for the books.
func idIn(call []byte) string {
	var of struct {
		Params struct{ Arguments struct{ ID string } }
	}
	_ = json.Unmarshal(call, &of) // it is that of the client
	return of.Params.Arguments.ID
}

// withoutOne writes one trail anew, with its key, as a gateway does that drops the record of a call with an outcome: no line of it is broken.
func withoutOne(outcome string) func(path string, key []byte) error {
	var dropped bool
	return func(path string, key []byte) error {
		text, err := os.ReadFile(path)
		if err == nil {
			err = errors.Join(os.Remove(path), os.Remove(path+".head"))
		}
		if err != nil {
			return err
		}
		trail, err := audit.Open(path, audit.Options{Key: key, Sync: true})
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			var r audit.Record
			if err := json.Unmarshal(line, &r); err != nil {
				return errors.Join(err, trail.Close())
			}
			if r.Method != "tools/call" {
				continue
			}
			if !dropped && r.Outcome == outcome {
				dropped = true
				continue
			}
			trail.Write(context.Background(), r)
		}
		return trail.Close()
	}
}
