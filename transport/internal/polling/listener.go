package polling

import "net"

// Listener wraps l. Its connections poll as members of the group.
func (g *Group) Listener(l net.Listener) net.Listener { return &listener{l, g} }

type listener struct {
	net.Listener
	group *Group
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.group.Conn(c), nil
}
