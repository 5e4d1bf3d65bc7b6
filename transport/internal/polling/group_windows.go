package polling

import "net"

// A Group is a number of connections. On Windows they do not poll: a read that has begun
// cannot be tried again.
type Group struct{}

// Conn returns c.
func (*Group) Conn(c net.Conn) net.Conn { return c }
