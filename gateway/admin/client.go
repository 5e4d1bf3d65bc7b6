package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"

	"github.com/bowline-mcp/bowline/internal/network"
)

const maxAnswer = 64 << 20 // bytes, of an answer and of an event

// A Client asks a gateway through its socket. It may be used from every goroutine, and needs no Close: it keeps no
// connection.
type Client struct {
	path string
	http http.Client
}

// Dial returns a Client of the gateway with this socket. It does not connect yet.
func Dial(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{path, http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// ErrNotRunning means that no gateway has the socket.
var ErrNotRunning = errors.New("no gateway runs")

// An AnswerError is a request that the gateway has refused or that has failed there.
type AnswerError struct {
	Status int // of HTTP
	Text   string
}

// Error implements error.
func (e *AnswerError) Error() string { return e.Text }

// Report asks for a Report.
func (c *Client) Report(ctx context.Context) (report Report, err error) {
	body, err := c.ask(ctx, http.MethodGet, "/v1/report")
	if err != nil {
		return report, err
	}
	defer body.Close()
	err = json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&report)
	return report, err
}

// Watch calls f with a Report at once and after each change, until f fails, ctx ends, or the gateway does. Its error is that
// of f, or says why it ended.
func (c *Client) Watch(ctx context.Context, f func(Report) error) error {
	return watch(ctx, c, "/v1/events", f)
}

// Do does something to a server.
func (c *Client) Do(ctx context.Context, server string, action Action) error {
	return c.post(ctx, "/v1/servers/"+url.PathEscape(server)+"/"+url.PathEscape(string(action)))
}

// Pins asks for the tools that are not as they were approved.
func (c *Client) Pins(ctx context.Context) (pins []Pin, err error) {
	body, err := c.ask(ctx, http.MethodGet, "/v1/pins")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	err = json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&pins)
	return pins, err
}

// Approve approves tools of a server as they are now, or all that have changed if none is named. One that is named with an @ and the Version of its Pin must still be that.
func (c *Client) Approve(ctx context.Context, server string, tools ...string) error {
	return c.post(ctx, "/v1/pins/"+url.PathEscape(server)+"?"+url.Values{"tool": tools}.Encode())
}

// Logout ends the login of a user at a server, and the user's connections with it.
func (c *Client) Logout(ctx context.Context, server, user string) error {
	return c.post(ctx, "/v1/logout/"+url.PathEscape(server)+"?"+url.Values{"user": {user}}.Encode())
}

// Reload makes the gateway read its file again.
func (c *Client) Reload(ctx context.Context) error { return c.post(ctx, "/v1/reload") }

// End makes the gateway end. It does not wait for that.
func (c *Client) End(ctx context.Context) error { return c.post(ctx, "/v1/end") }

// Page returns an address of the page that logs a browser in. It holds once, for a minute.
func (c *Client) Page(ctx context.Context) (address string, err error) {
	body, err := c.ask(ctx, http.MethodPost, "/v1/code")
	if err != nil {
		return "", err
	}
	defer body.Close()
	var given codeAnswer
	err = json.NewDecoder(io.LimitReader(body, maxForm)).Decode(&given)
	return given.URL, err
}

// Stderr calls f with the last lines of a child's standard error, and with those that come if it shall follow. It ends as
// Watch does, and without an error if it does not follow.
func (c *Client) Stderr(ctx context.Context, server string, follow bool, f func(lines []string) error) error {
	path := "/v1/stderr/" + url.PathEscape(server)
	if follow {
		return watch(ctx, c, path+"?follow", f)
	}
	if err := watch(ctx, c, path, f); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string) error {
	body, err := c.ask(ctx, http.MethodPost, path)
	if err != nil {
		return err
	}
	return body.Close()
}

// ask returns the body of an answer, which the caller closes.
func (c *Client) ask(ctx context.Context, method, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://bowline"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), network.IsRefused(err):
		return nil, fmt.Errorf("%w at %s", ErrNotRunning, c.path)
	case err != nil:
		return nil, fmt.Errorf("the gateway at %s: %w", c.path, err)
	case response.StatusCode < http.StatusMultipleChoices:
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxForm)) // what is there has to do
	said := struct{ Error string }{string(bytes.TrimSpace(text))}
	_ = json.Unmarshal(text, &said) // it may be plain text
	return nil, &AnswerError{response.StatusCode, said.Error}
}

// watch reads a stream of events, each of which has one line of JSON.
func watch[T any](ctx context.Context, c *Client, path string, f func(T) error) error {
	body, err := c.ask(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxAnswer)
	var event []byte
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			event = bytes.Clone(data)
		}
		if len(lines.Bytes()) > 0 || event == nil { // an empty line ends an event: what a lost gateway has only begun is none
			continue
		}
		var value T
		if err := json.Unmarshal(event, &value); err != nil {
			return fmt.Errorf("the gateway at %s: %w", c.path, err)
		}
		event = nil
		if err := f(value); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case lines.Err() != nil:
		return fmt.Errorf("the gateway at %s has gone: %w", c.path, lines.Err())
	default:
		return fmt.Errorf("the gateway at %s has ended the stream: %w", c.path, io.EOF)
	}
}
