package streamable

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
			got := transport.LinkTraitsOf(r.link)
			if got.LastRead = (time.Time{}); got != (transport.LinkTraits{Network: want, RequestPerMessage: true, RecordsReads: true}) {
				t.Errorf("HTTP %s: got the traits %+v, want a request for each message, a record of what is read, and the network %+v", version, got, want)
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

// A response with more than a MiB of headers fails its request. The link goes on.
func TestHeadersOfAResponseAreLimited(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		if body, _ := io.ReadAll(req.Body); strings.Contains(string(body), `"id":1`) {
			w.Header().Set("X-Long", strings.Repeat("x", 3<<19))
		}
		answerJSON(result(2))(w, req)
	})
	r.call(1, 1)
	r.await("the answer", func() bool { return len(r.received)+len(r.failed)+len(r.broken) > 0 })
	if len(r.failed) != 1 {
		t.Errorf("got %d answers and the failures %+v, want one failure", len(r.received), r.failed)
	}
	r.wantFrame(0, r.call(2, 1), result(2), true)
}
