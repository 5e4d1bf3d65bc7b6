package hop

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
)

// newServer returns the server for other nodes.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: handler, Protocols: protocols,
		ReadHeaderTimeout: handshakePatience, // net/http takes it for the handshake, too
		IdleTimeout:       idleIncoming,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: bodyWindow, MaxReceiveBufferPerConnection: connectionWindow,
			SendPingTimeout: silence, PingTimeout: pingPatience, WriteByteTimeout: pingPatience,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// A door serves the requests of other nodes.
type door struct {
	hop *Hop

	mu      sync.RWMutex
	mounted map[string]http.Handler
}

func (d *door) mount(path string, handler http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounted[path] = handler
}

// handler returns the handler of the longest path that contains a path.
func (d *door) handler(path string) (at string, handler http.Handler) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for at = path; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		if handler = d.mounted[at]; handler != nil {
			return at, handler
		}
	}
	return "", nil
}

// ServeHTTP implements http.Handler. A node that has ended meanwhile may still have a connection;
// its requests are not executed.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(*r.TLS)
	if node, _ := d.hop.peers.OfKey(key); err != nil || node == "" {
		w.Header().Set("Connection", "close")
		http.Error(w, "your node does not live", http.StatusMisdirectedRequest)
		return
	}
	d.hop.counts.received.Add(1)
	how, err := parseReceived(r.Header.Get(headerReceived))
	if err != nil || !strings.HasPrefix(r.URL.Path, "/") {
		http.Error(w, "not a request of a node", http.StatusBadRequest)
		return
	}
	at, handler := d.handler(r.URL.Path)
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	handler.ServeHTTP(w, how.restore(r, at))
}

// strangers are the connections of a listener that have not shown their key yet.
type strangers struct {
	net.Listener

	mu     sync.Mutex
	all    map[*stranger]struct{}
	serial uint64
}

// A stranger is a connection of which nobody knows who made it.
type stranger struct {
	net.Conn
	of     *strangers
	serial uint64
}

// Accept implements net.Listener.
func (s *strangers) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted, oldest := s.add(c)
	if oldest != nil {
		oldest.Conn.Close()
	}
	return accepted, nil
}

// add adds a connection. If there are too many, it also returns the one that has to go.
func (s *strangers) add(c net.Conn) (accepted, oldest *stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxStrangers {
		for other := range s.all {
			if oldest == nil || other.serial < oldest.serial {
				oldest = other
			}
		}
		delete(s.all, oldest)
	}
	s.serial++
	accepted = &stranger{Conn: c, of: s, serial: s.serial}
	s.all[accepted] = struct{}{}
	return accepted, oldest
}

// admit notes that a connection has shown its key.
func (s *strangers) admit(c net.Conn) {
	if known, ok := c.(*stranger); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, known)
	}
}

// Close implements net.Conn.
func (c *stranger) Close() error {
	c.of.admit(c)
	return c.Conn.Close()
}
