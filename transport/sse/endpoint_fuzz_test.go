package sse

import (
	"net/url"
	"testing"

	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

// FuzzEndpoint reads arbitrary text as the endpoint of a server. An accepted endpoint
// is of the same origin.
//
// Guarantees: G-0034.1
func FuzzEndpoint(f *testing.F) {
	for _, reference := range []string{"/m?sessionId=1", "", "//evil/m", `\\evil\m`, "http://127.0.0.1:80@evil/", "HTTP://127.0.0.1:80/", "http:/m", "http:m",
		"/\tm", "?a#b", "http://[::1", "\x00"} {
		f.Add(reference)
	}
	f.Fuzz(func(t *testing.T, reference string) {
		address := &url.URL{Scheme: "http", Host: "127.0.0.1:80", Path: "/sse"}
		endpoint, err := endpointOf(eventstream.Event{Type: "endpoint", Data: []byte(reference)}, address)
		if err != nil {
			return
		}
		again, err := url.Parse(endpoint.String()) // the address that net/http uses
		if err != nil || again.Scheme != "http" || again.Host != address.Host {
			t.Errorf("%q leads to %q, want the same origin", reference, endpoint)
		}
	})
}
