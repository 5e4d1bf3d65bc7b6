//go:build !unix

package polling

import (
	"net"
	"net/http"
)

// A Group is a number of connections. Where this file is compiled they do not poll. On
// Windows, for instance, a read that has begun cannot be tried again.
type Group struct{}

// Conn returns c.
func (*Group) Conn(c net.Conn) net.Conn { return c }

// Join does nothing.
func (*Group) Join(*http.Transport) {}
