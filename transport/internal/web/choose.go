package web

import (
	"net/http"
	"reflect"

	"github.com/bowline-mcp/bowline/transport"
)

// Choose asks a program which acceptor a request is for. If it names none, or one by which a handler cannot find links,
// the request is refused with the status and the text. Otherwise the status is 0.
func Choose(choose func(*http.Request) transport.Acceptor, r *http.Request) (a transport.Acceptor, status int, text string) {
	a = choose(r)
	switch {
	case IsNil(a):
		return nil, http.StatusNotFound, "there is no such server"
	case !reflect.ValueOf(a).Comparable(): // as the key of a map it would panic
		return nil, http.StatusInternalServerError, "the server chosen for this request cannot be compared"
	}
	return a, 0, ""
}

// IsNil reports whether there is no acceptor: a is nil, or a nil pointer.
func IsNil(a transport.Acceptor) bool {
	v := reflect.ValueOf(a)
	return a == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
