package streamable

import (
	"net/http"
	"testing"

	"github.com/bowline-mcp/bowline/transport/internal/web"
)

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
				t.Errorf("%q accepts %s: %v", test.accept, mediaType, got)
			}
		}
	}
}

func TestHeadersNameARevision(t *testing.T) {
	for version, want := range map[string]struct{ isDate, isModern bool }{
		"2026-07-28": {true, true}, "2030-09-19": {true, true}, "9999-99-99": {true, true}, "2026-07-27": {true, false}, "2025-11-25": {true, false}, "0000-00-00": {true, false},
		"": {}, "draft": {}, "9999-99-9": {}, "9999-99-999": {}, "9999099-99": {}, "9999-99099": {}, "99-99-99-9": {}, "9999-99--9": {}, "-999-99-99": {},
		"9999-99-9:": {}, "9999-99-9/": {}, ":999-99-99": {}, "9999/99/99": {}, "9999-x9-99": {},
	} {
		header := http.Header{}
		header.Set(headerVersion, version)
		if isDate(version) != want.isDate || namesModern(header) != want.isModern {
			t.Errorf("%q: a date: %v, modern: %v", version, isDate(version), namesModern(header))
		}
	}
}

func TestHeadersCarryTokens(t *testing.T) {
	for value, want := range map[string]bool{"!~a": true, "abcd": true, "": false, "abcde": false, " a": false, "a ": false, "a\x7f": false, "ä": false} {
		if got := isToken(value, 4); got != want {
			t.Errorf("%q is a token: %v", value, got)
		}
	}
}
