package streamable

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// accepts follows the media ranges and quality values of the Accept header.
func TestHeadersAcceptMediaTypes(t *testing.T) {
	for _, test := range []struct {
		accept             []string
		json, events, html bool
	}{
		{nil, true, true, true},
		{[]string{typeBoth}, true, true, false},
		{[]string{"text/html", typeBoth}, true, true, true},
		{[]string{"text/event-stream, application/json"}, true, true, false},
		{[]string{web.TypeJSON}, true, false, false},
		{[]string{web.TypeEvents}, false, true, false},
		{[]string{"Application/JSON;charset=utf-8"}, true, false, false},
		{[]string{"*/*"}, true, true, true},
		{[]string{"Application/*"}, true, false, false},
		{[]string{"text/*;q=0.1"}, false, true, true},
		{[]string{"application", "text", "application/jsonx", "app/*"}, false, false, false},
		{[]string{"application/json;q=0"}, false, false, false},
		{[]string{"application/json; a=b; Q=0.00"}, false, false, false},
		{[]string{"application/json;q=0, text/html"}, false, false, true},
		{[]string{"application/json;a=0;q="}, true, false, false},
	} {
		for mediaType, want := range map[string]bool{web.TypeJSON: test.json, web.TypeEvents: test.events, "text/html": test.html} {
			header := http.Header{}
			if test.accept != nil {
				header["Accept"] = test.accept
			}
			if got := accepts(header, mediaType); got != want {
				t.Errorf("%q accepts %s: got %v, want %v", test.accept, mediaType, got, want)
			}
		}
	}
}

// A revision is a date, and decides whether a request is modern.
func TestHeadersNameARevision(t *testing.T) {
	for version, want := range map[string]struct{ isDate, isModern bool }{
		"2026-07-28": {true, true}, "2030-09-19": {true, true}, "9999-99-99": {true, true}, "2026-07-27": {true, false}, "2025-11-25": {true, false}, "0000-00-00": {true, false},
		"": {}, "draft": {}, "9999-99-9": {}, "9999-99-999": {}, "9999099-99": {}, "9999-99099": {}, "99-99-99-9": {}, "9999-99--9": {}, "-999-99-99": {},
		"9999-99-9:": {}, "9999-99-9/": {}, ":999-99-99": {}, "9999/99/99": {}, "9999-x9-99": {},
	} {
		header := http.Header{}
		header.Set(headerVersion, version)
		if isDate(version) != want.isDate || namesModern(header) != want.isModern {
			t.Errorf("%q: got a date: %v, modern: %v, want isDate(version) == %v and namesModern(header) == %v", version, isDate(version), namesModern(header), want.isDate, want.isModern)
		}
	}
}

// A token consists of visible ASCII and has a limited length.
func TestHeadersCarryTokens(t *testing.T) {
	for value, want := range map[string]bool{"!~a": true, "abcd": true, "": false, "abcde": false, " a": false, "a ": false, "a\x7f": false, "ä": false} {
		if got := isToken(value, 4); got != want {
			t.Errorf("%q is a token: got %v, want %v", value, got, want)
		}
	}
}

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

// The Host header is checked if the server listens on a loopback address, or if the
// program names the allowed hosts.
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
			t.Errorf("%s on %s, with %q: got %d, want %d", test.url, test.address, test.options.AllowedHosts, got, test.want)
		}
	}
}

// A page whose origin equals the requested host may use DNS rebinding, so it is
// refused, unless TLS or the allowed hosts confirm the name.
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
			t.Errorf("%s at %s, with %q: got %d, want %d", test.origin, test.url, test.hosts, got, test.want)
		}
	}
}
