package polling

import "net"

// Listener returns a listener whose connections are of the group.
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
