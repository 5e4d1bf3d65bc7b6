//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// A kind is one way to attack. Each connection calls once again and again, at most rate times a second.
type kind struct {
	name string
	rate int
	open int // how many sockets all attackers together keep open, if that is the attack
	once func(context.Context, *connection) error
	also func(context.Context, *connection) error // what the good client does beside its calls; nil: nothing
}

var kinds = []kind{
	{name: "calls", rate: 1000, once: func(ctx context.Context, c *connection) error { return c.call(ctx, "echo", textOf(64)) }},
	{name: "notifications", rate: 1000, once: func(ctx context.Context, c *connection) error {
		return c.post(ctx, "notifications/cancelled", "", none, `"requestId":1`)
	}},
	{name: "large bodies", rate: 20, once: func(ctx context.Context, c *connection) error {
		return c.call(ctx, "echo", textOf(4<<20-1000))
	}},
	{name: "many values", rate: 20, once: func(ctx context.Context, c *connection) error {
		return c.call(ctx, "any", `{"a":[`+strings.Repeat("0,", 500_000)+`0]}`)
	}},
	{name: "batches", rate: 100, once: batch},
	{name: "cancels", rate: 200, once: func(ctx context.Context, c *connection) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		return c.call(ctx, "sleep", textOf(64))
	}},
	{name: "connects", rate: 200, once: connect},
	{name: "sessions", rate: 200, once: func(ctx context.Context, c *connection) error { _, err := c.initialize(ctx); return err }},
	{name: "half-open bodies", rate: 50, open: 2000, once: halfOpen},
	{name: "unread answers", rate: 20, open: 200, once: unread},
	{name: "listens of 10,000 URIs", rate: 20, open: 847, once: listen},
	{name: "tasks", rate: 500, once: becomesTask, also: becomesTask},
	{name: "calls that wait for an answer", rate: 100, once: waits, also: waits},
	{name: "sessions of HTTP+SSE", rate: 100, open: 1000, once: sseSession, also: sseSession},
}

func kindOf(name string) (kind, error) {
	for _, k := range kinds {
		if k.name == name {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("there is no attack %q", name)
}

// A connection is one of an attacker.
type connection struct {
	host, url string
	dialer    *net.Dialer
	http      *http.Client
	session   string     // of batches
	open      []net.Conn // that stay open, the oldest first
	most      int        // how many may stay open
}

func newConnection(host, from string) *connection {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &connection{
		host: host, url: "http://" + host + "/mcp", dialer: dialer,
		http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxConnsPerHost: 1}},
	}
}

// textOf returns the arguments of a tool that takes a text.
func textOf(size int) string { return `{"text":"` + strings.Repeat("x", size) + `"}` }

// callOf returns the params of a call.
func callOf(tool, arguments string) string { return `"name":"` + tool + `","arguments":` + arguments }

// The capabilities of a client, beside none.
const (
	none      = `{}`
	forms     = `{"elicitation":{}}`
	withTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// bodyOf returns a modern request, or a notification, of a client with such capabilities.
func bodyOf(method, capabilities, params string) string {
	id := `"id":1,`
	if strings.HasPrefix(method, "notifications/") {
		id = ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":%s},%s}}`, id, method, capabilities, params)
}

func (c *connection) request(ctx context.Context, body string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r, nil
}

// call calls a tool.
func (c *connection) call(ctx context.Context, tool, arguments string) error {
	return c.post(ctx, "tools/call", tool, none, callOf(tool, arguments))
}

// errRefused says that a server has not done what it was asked for, because others want it, too.
var errRefused = errors.New("refused")

// post sends a modern message and reads the response.
func (c *connection) post(ctx context.Context, method, name, capabilities, params string) error {
	r, err := c.request(ctx, bodyOf(method, capabilities, params))
	if err != nil {
		return err
	}
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", method)
	if name != "" {
		r.Header.Set("Mcp-Name", name)
	}
	_, err = c.do(r)
	return err
}

// do sends a request and reads the response.
func (c *connection) do(r *http.Request) (http.Header, error) {
	response, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	first := make([]byte, 4<<10)
	n, err := io.ReadFull(response.Body, first)
	first = first[:n]
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	} else if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	switch overloaded := bytes.Contains(first, []byte(`"error":{"code":-32050`)); {
	case err != nil:
	case overloaded, response.StatusCode == http.StatusServiceUnavailable, response.StatusCode == http.StatusTooManyRequests:
		err = fmt.Errorf("%w: %s: %.200s", errRefused, response.Status, first)
	case response.StatusCode >= 300, bytes.Contains(first, []byte(`"error":{"code":`)):
		err = fmt.Errorf("the response is %s: %.200s", response.Status, first)
	}
	return response.Header, err
}

// initialize begins a session and returns its id.
func (c *connection) initialize(ctx context.Context) (string, error) {
	r, err := c.request(ctx, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`)
	if err != nil {
		return "", err
	}
	header, err := c.do(r)
	if err == nil {
		c.session = header.Get("Mcp-Session-Id")
	}
	return c.session, err
}

func batch(ctx context.Context, c *connection) (err error) {
	if c.session == "" {
		if _, err = c.initialize(ctx); err != nil {
			return err
		}
	}
	r, err := c.request(ctx, "["+strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 1000)+`{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	if err != nil {
		return err
	}
	r.Header.Set("Mcp-Session-Id", c.session)
	if _, err = c.do(r); err != nil && !errors.Is(err, errRefused) {
		c.session = "" // it may have ended
	}
	return err
}

func connect(ctx context.Context, c *connection) error {
	conn, err := c.dialer.DialContext(ctx, "tcp", c.host)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	return err
}

// keep opens a socket that stays open, in place of the oldest if there are many.
func (c *connection) keep(ctx context.Context, text string) error {
	conn, err := c.dialer.DialContext(ctx, "tcp", c.host)
	if err != nil {
		return err
	}
	if c.open = append(c.open, conn); len(c.open) > c.most {
		c.open[0].Close()
		c.open = c.open[1:]
	}
	_, err = io.WriteString(conn, text)
	return err
}

const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
	"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n"

// halfOpen announces a body of 4 MiB, sends one byte of every second one and nothing of the others.
func halfOpen(ctx context.Context, c *connection) error {
	return c.keep(ctx, fmt.Sprintf(head, "tools/call", "echo", 4<<20-1)+"{"[:len(c.open)%2])
}

// unread asks for a large answer, and does not read it.
func unread(ctx context.Context, c *connection) error {
	body := bodyOf("tools/call", none, callOf("large", textOf(1)))
	return c.keep(ctx, fmt.Sprintf(head, "tools/call", "large", len(body))+body)
}

// listen subscribes to many resources, and keeps the stream open.
func listen(ctx context.Context, c *connection) error {
	uris := make([]string, 10_000)
	for i := range uris {
		uris[i] = fmt.Sprintf(`"test://a/long/name/of/a/resource/%06d"`, i)
	}
	body := bodyOf("subscriptions/listen", none, `"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]}`)
	return c.keep(ctx, fmt.Sprintf(head, "subscriptions/listen", "", len(body))+body)
}

// becomesTask calls a tool that becomes a task, which runs for a minute.
func becomesTask(ctx context.Context, c *connection) error {
	return c.post(ctx, "tools/call", "later", withTasks, callOf("later", textOf(64)))
}

// waits calls a tool that asks a question, which nobody answers.
func waits(ctx context.Context, c *connection) error {
	return c.post(ctx, "tools/call", "asks", forms, callOf("asks", textOf(64)))
}

// sseSession opens a session of HTTP+SSE, which ends when many others have been opened.
func sseSession(ctx context.Context, c *connection) error {
	if err := c.keep(ctx, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		return err
	}
	conn, status := c.open[len(c.open)-1], make([]byte, len("HTTP/1.1 200"))
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	switch _, err := io.ReadFull(conn, status); {
	case err != nil:
		return err
	case string(status) == "HTTP/1.1 503":
		return errRefused
	case string(status) != "HTTP/1.1 200":
		return fmt.Errorf("the response is %q", status)
	}
	return nil
}

// close ends what stays open.
func (c *connection) close() {
	for _, conn := range c.open {
		conn.Close()
	}
	c.http.CloseIdleConnections()
}
