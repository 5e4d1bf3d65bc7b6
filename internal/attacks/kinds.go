//go:build unix

package main

import (
	"context"
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
}

var kinds = []kind{
	{"calls", 1000, 0, func(ctx context.Context, c *connection) error { return c.call(ctx, "echo", textOf(64)) }},
	{"notifications", 1000, 0, func(ctx context.Context, c *connection) error {
		return c.post(ctx, "notifications/cancelled", "", `"requestId":1`)
	}},
	{"large bodies", 20, 0, func(ctx context.Context, c *connection) error {
		return c.call(ctx, "echo", textOf(4<<20-1000))
	}},
	{"many values", 20, 0, func(ctx context.Context, c *connection) error {
		return c.call(ctx, "any", `{"a":[`+strings.Repeat("0,", 500_000)+`0]}`)
	}},
	{"batches", 100, 0, batch},
	{"cancels", 200, 0, func(ctx context.Context, c *connection) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		return c.call(ctx, "sleep", textOf(64))
	}},
	{"connects", 200, 0, connect},
	{"sessions", 200, 0, func(ctx context.Context, c *connection) error { _, err := c.initialize(ctx); return err }},
	{"half-open bodies", 50, 2000, halfOpen},
	{"unread answers", 20, 200, unread},
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

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// bodyOf returns a modern request, or a notification.
func bodyOf(method, params string) string {
	id := `"id":1,`
	if strings.HasPrefix(method, "notifications/") {
		id = ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q,"params":{%s,%s}}`, id, method, modernMeta, params)
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
	return c.post(ctx, "tools/call", tool, callOf(tool, arguments))
}

// post sends a modern message and reads the response.
func (c *connection) post(ctx context.Context, method, name, params string) error {
	r, err := c.request(ctx, bodyOf(method, params))
	if err != nil {
		return err
	}
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", method)
	if name != "" {
		r.Header.Set("Mcp-Name", name)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("the response is %s", response.Status)
	}
	return err
}

// initialize begins a session and returns its id.
func (c *connection) initialize(ctx context.Context) (string, error) {
	r, err := c.request(ctx, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`)
	if err != nil {
		return "", err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.Header.Get("Mcp-Session-Id"), err
}

func batch(ctx context.Context, c *connection) (err error) {
	if c.session == "" {
		if c.session, err = c.initialize(ctx); err != nil {
			return err
		}
	}
	r, err := c.request(ctx, "["+strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 1000)+`{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	if err != nil {
		return err
	}
	r.Header.Set("Mcp-Session-Id", c.session)
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		c.session = ""
	}
	_, err = io.Copy(io.Discard, response.Body)
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
	"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n"

// halfOpen announces a body of 4 MiB, sends one byte of every second one and nothing of the others.
func halfOpen(ctx context.Context, c *connection) error {
	return c.keep(ctx, fmt.Sprintf(head, "echo", 4<<20-1)+"{"[:len(c.open)%2])
}

// unread asks for a large answer, and does not read it.
func unread(ctx context.Context, c *connection) error {
	body := bodyOf("tools/call", callOf("large", textOf(1)))
	return c.keep(ctx, fmt.Sprintf(head, "large", len(body))+body)
}

// close ends what stays open.
func (c *connection) close() {
	for _, conn := range c.open {
		conn.Close()
	}
	c.http.CloseIdleConnections()
}
