package streamable

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// statusOn returns the status of a PUT request to a server at an address. No server
// supports PUT: the status is 405 if the origin and the host are allowed, and 403 if
// they are not.
func statusOn(t *testing.T, o HandlerOptions, address, url, origin string) int {
	t.Helper()
	h := NewHandler(newAcceptor(respond), o)
	defer h.Close(0)
	r := httptest.NewRequest("PUT", url, nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(address), Port: 80})))
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	if r.URL.Scheme == "https" {
		r.TLS = &tls.ConnectionState{}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// A server looks at the name it is called by when it is on a loopback address,
// and anywhere when it knows its names.
//
// Guarantees: G-0022.8
func TestHostIsCheckedWhenItIsKnown(t *testing.T) {
	named := HandlerOptions{AllowedHosts: []string{"mcp.example"}}
	for _, test := range []struct {
		address string
		url     string
		options HandlerOptions
		want    int
	}{
		{"192.0.2.1", "http://other.example/", HandlerOptions{}, 405},
		{"127.0.0.1", "http://other.example/", HandlerOptions{}, 403},
		{"::1", "http://other.example/", HandlerOptions{}, 403},
		{"::ffff:127.0.0.1", "http://other.example/", HandlerOptions{}, 403},
		{"192.0.2.1", "http://other.example/", named, 403},
		{"192.0.2.1", "http://mcp.example:8080/", named, 405},
		{"127.0.0.1", "http://mcp.example:8080/", named, 405},
	} {
		if got := statusOn(t, test.options, test.address, test.url, ""); got != test.want {
			t.Errorf("%s on %s, with %q: %d, want %d", test.url, test.address, test.options.AllowedHosts, got, test.want)
		}
	}
}

// A page whose origin is the host it asks may still have had that name rebound
// to the server's address. TLS, or a name that is known, says that it has not.
//
// Guarantees: G-0022.8
func TestOriginOfAReboundName(t *testing.T) {
	for _, test := range []struct {
		url    string
		origin string
		hosts  []string
		want   int
	}{
		{"http://evil.example:8080/", "http://evil.example:8080", nil, 403},
		{"http://evil.example:8080/", "http://evil.example:8080", []string{"mcp.example"}, 403},
		{"http://mcp.example/", "http://mcp.example", []string{"mcp.example"}, 405},
		{"http://mcp.example/", "https://mcp.example", []string{"mcp.example"}, 403},
		{"http://localhost:8080/", "http://localhost:8080", nil, 405},
		{"http://127.0.0.1:8080/", "http://127.0.0.1:8080", nil, 405},
		{"https://mcp.example/", "https://mcp.example", nil, 405},
		{"https://mcp.example/", "http://mcp.example", nil, 403},
		{"https://mcp.example/", "https://evil.example", nil, 403},
	} {
		o := HandlerOptions{AllowedHosts: test.hosts}
		if got := statusOn(t, o, "192.0.2.1", test.url, test.origin); got != test.want {
			t.Errorf("%s at %s, with %q: %d, want %d", test.origin, test.url, test.hosts, got, test.want)
		}
	}
}
