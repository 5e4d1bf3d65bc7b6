package sse

import (
	"net/url"
	"testing"

	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

// Messages are posted to the host of the stream and with its credentials, however the
// server spells the endpoint.
//
// Guarantees: G-0034.1
func TestEndpointKeepsHostAndCredentials(t *testing.T) {
	for _, c := range []struct{ address, reference, want string }{
		{"https://user:secret@host/sse", "/m?sessionId=1", "https://user:secret@host/m?sessionId=1"},
		{"https://user:secret@host/sse", "https://host/m?sessionId=1", "https://user:secret@host/m?sessionId=1"},
		{"https://user:secret@host/sse", "https://host:443/m", "https://user:secret@host/m"},
		{"https://user:secret@host/sse", "https://other@host/m", "https://user:secret@host/m"},
		{"https://host/sse", "HTTPS://HOST/m", "https://host/m"},
		{"http://host:80/sse", "http://host/m", "http://host:80/m"},
		{"http://host/sse", "//host:80/m", "http://host/m"},
	} {
		address, err := url.Parse(c.address)
		if err != nil {
			t.Fatal(err)
		}
		endpoint, err := endpointOf(eventstream.Event{Type: "endpoint", Data: []byte(c.reference)}, address)
		if err != nil || endpoint.String() != c.want {
			t.Errorf("%s at %s: got %v, %v, want %s", c.reference, c.address, endpoint, err, c.want)
		}
	}
}
