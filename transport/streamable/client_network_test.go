package streamable

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// Network returns the version of HTTP after the first response, and the session after
// it has begun.
//
// Guarantees: G-0061.1
func TestNetworkOfALink(t *testing.T) {
	for _, two := range []bool{false, true} {
		version := "1.1"
		server := httptest.NewUnstartedServer(&legacyServer{session: "s-1"})
		if server.EnableHTTP2 = two; two {
			version = "2"
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		r := open(t, &Client{URL: server.URL, HTTP: &http.Client{Transport: server.Client().Transport}})
		known := func(want transport.Network) {
			t.Helper()
			if got := transport.LinkTraitsOf(r.link).Network; got != want {
				t.Errorf("HTTP %s: got the network %+v, want %+v", version, got, want)
			}
		}
		known(transport.Network{})
		r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
		known(transport.Network{HTTP: version, Session: "s-1"})
		if err := r.link.Close(hangGuard); err != nil {
			t.Fatal(err)
		}
		known(transport.Network{HTTP: version, Session: "s-1"})
	}
}
