package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"runtime"
	"strings"
	"sync/atomic"
)

func connections(n int) string { return fmt.Sprintf("connections=%d", n) }

func connectionNumbers(quick bool) []int {
	if quick {
		return []int{1, 100, 1000}
	}
	return []int{1, 100, 1000, 10_000}
}

// manyConnections opens more and more connections in memory. For each number of
// them it weighs what one takes while all are idle, and then has 64 callers call
// over one connection after the other.
func manyConnections(ctx context.Context, m *measurement) error {
	open := m.memory(m.revision, serving{many: true})
	empty := m.weigh()
	var sessions []*session
	var echoes []call
	for _, n := range connectionNumbers(m.quick) {
		for len(sessions) < n {
			s, err := m.kept(open(ctx))
			if err != nil {
				return err
			}
			echo := s.echo(echoText)
			if err := echo(ctx); err != nil {
				return err
			}
			sessions, echoes = append(sessions, s), append(echoes, echo)
		}
		m.addHeld(connections(n), empty, n)
		var next atomic.Int64
		err := m.calls(ctx, connections(n), 64, func(ctx context.Context) error {
			return echoes[int(next.Add(1))%n](ctx)
		})
		if err != nil {
			return err
		}
	}
	runtime.KeepAlive(sessions)
	return nil
}

const (
	withoutStream = "sessions"
	withStream    = "sessions with an open GET stream"
)

// idleSessions weighs a server's sessions over HTTP: first those whose client says
// nothing, and then those whose client keeps a GET stream open. The clients are
// connections and nothing else, in this process.
func idleSessions(ctx context.Context, m *measurement) error {
	site, err := newSite(m.handler(m.revision))
	if err != nil {
		return err
	}
	defer site.close()
	if _, err := site.openSession(); err != nil {
		return err
	}
	many := pick(m, 2000, 200)
	empty := m.weigh()
	var names []string
	for range many {
		name, err := site.openSession()
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	m.addHeld(withoutStream, empty, many)
	streamed := many / 4
	empty = m.weigh()
	for _, name := range names[:streamed] {
		if err := site.openStream(name); err != nil {
			return err
		}
	}
	// The session itself comes on top of its stream.
	now := m.weigh()
	alone := m.samples[len(m.samples)-2:]
	m.add(withStream, held, alone[0].Value+float64(now.bytes-empty.bytes)/float64(streamed))
	m.add(withStream, goroutines, alone[1].Value+float64(now.goroutines-empty.goroutines)/float64(streamed))
	return nil
}

// addHeld adds what each of so many takes, beyond what was there before them.
func (m *measurement) addHeld(point string, before weight, many int) {
	now := m.weigh()
	m.add(point, held, float64(now.bytes-before.bytes)/float64(many))
	m.add(point, goroutines, float64(now.goroutines-before.goroutines)/float64(many))
}

// A site is a server on loopback, and one connection to it.
type site struct {
	server  *http.Server
	address string
	client  *wireClient
	streams []*wireClient
}

// A wireClient speaks HTTP/1.1 with no more than a connection.
type wireClient struct {
	net.Conn
	in *bufio.Reader
}

func newSite(handler http.Handler) (*site, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &site{server: &http.Server{Handler: handler}, address: listener.Addr().String()}
	go s.server.Serve(listener) // until close
	s.client, err = s.dial()
	return s, err
}

func (s *site) close() {
	for _, c := range append(s.streams, s.client) {
		c.Close()
	}
	s.server.Close()
}

func (s *site) dial() (*wireClient, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	return &wireClient{conn, bufio.NewReaderSize(conn, 256)}, nil
}

const initializeRequest = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacy +
	`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`

// openSession does what initialize and the notification after it do.
func (s *site) openSession() (name string, err error) {
	header, err := s.client.post(s.address, "", initializeRequest)
	if err != nil {
		return "", err
	}
	name = header.Get("Mcp-Session-Id")
	if name == "" {
		return "", errors.New("initialize gave no session")
	}
	_, err = s.client.post(s.address, name, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return name, err
}

// openStream returns when the server has said that it will send.
func (s *site) openStream(name string) error {
	c, err := s.dial()
	if err != nil {
		return err
	}
	s.streams = append(s.streams, c)
	if err := c.send(s.address, http.MethodGet, name, ""); err != nil {
		return err
	}
	head := textproto.NewReader(c.in)
	status, err := head.ReadLine()
	if err != nil {
		return err
	}
	if !strings.Contains(status, " 200 ") {
		return fmt.Errorf("GET: %s", status)
	}
	if _, err := head.ReadMIMEHeader(); err != nil {
		return err
	}
	c.in = nil // what comes is not read
	return nil
}

func (c *wireClient) post(host, session, body string) (http.Header, error) {
	if err := c.send(host, http.MethodPost, session, body); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("POST: %s: %.100s", response.Status, answer)
	}
	return response.Header, err
}

func (c *wireClient) send(host, method, session, body string) error {
	var request strings.Builder
	fmt.Fprintf(&request, "%s /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\n", method, host)
	if session != "" {
		fmt.Fprintf(&request, "Mcp-Session-Id: %s\r\nMcp-Protocol-Version: %s\r\n", session, legacy)
	}
	if body != "" {
		fmt.Fprintf(&request, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	request.WriteString("\r\n" + body)
	_, err := io.WriteString(c.Conn, request.String())
	return err
}
