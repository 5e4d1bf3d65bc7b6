package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
)

const limitLength = "Content-Length: "

// limitExchange is one side of a connection that carries requests and answers of
// HTTP/1.1, written by hand.
type limitExchange struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

func newLimitExchange(conn net.Conn) *limitExchange {
	return &limitExchange{conn: conn, in: bufio.NewReader(conn)}
}

// read returns the next body, which is valid until the read after it.
func (e *limitExchange) read() ([]byte, error) {
	length := 0
	for {
		line, err := e.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if len(line) == 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte(limitLength)); ok {
			if length, err = strconv.Atoi(string(value[:len(value)-2])); err != nil {
				return nil, err
			}
		}
	}
	if cap(e.body) < length {
		e.body = make([]byte, length)
	}
	e.body = e.body[:length]
	_, err := io.ReadFull(e.in, e.body)
	return e.body, err
}

// write sends a head, and a body of such a length that build appends.
func (e *limitExchange) write(head string, length int, build func([]byte) []byte) error {
	e.out = append(append(e.out[:0], head...), limitLength...)
	e.out = append(strconv.AppendInt(e.out, int64(length), 10), "\r\n\r\n"...)
	e.out = build(e.out)
	_, err := e.conn.Write(e.out)
	return err
}

// serveLimitHTTP serves each connection on a goroutine, until the listener is closed.
func serveLimitHTTP(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go serveLimitExchange(newLimitExchange(conn))
	}
}

func serveLimitExchange(e *limitExchange) {
	defer e.conn.Close()
	for {
		body, err := e.read()
		if err != nil {
			return
		}
		id, text := cutLimit(body, len(limitRequest), len(limitRequestTail))
		length := len(body) - len(limitRequest) - len(limitRequestTail) + len(limitResponse) + len(limitResponseTail)
		const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		if err := e.write(head, length, func(to []byte) []byte { return appendLimitResponse(to, id, text) }); err != nil {
			return
		}
	}
}

// A limitPoster has as many connections as it has callers at once.
type limitPoster struct {
	address string
	head    string

	mu   sync.Mutex
	idle []*limitExchange
}

func limitOverHTTP(_ context.Context, _, address string) (*session, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	p := &limitPoster{address: to.Host, head: fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", to.Path, to.Host)}
	return &session{echo: func(text string) call { return func(ctx context.Context) error { return p.echo(ctx, text) } }, close: p.close}, nil
}

func (p *limitPoster) echo(ctx context.Context, text string) error {
	e, err := p.take(ctx)
	if err != nil {
		return err
	}
	length := len(limitID) + 1 + len(limitRequest) + len(text) + len(limitRequestTail)
	if err := e.write(p.head, length, func(to []byte) []byte { return appendLimitRequest(to, 1, text) }); err != nil {
		return err
	}
	body, err := e.read()
	if err != nil {
		return err
	}
	_, got := cutLimit(body, len(limitResponse), len(limitResponseTail))
	err = sameText(string(got), text)
	p.mu.Lock()
	p.idle = append(p.idle, e)
	p.mu.Unlock()
	return err
}

func (p *limitPoster) take(ctx context.Context) (*limitExchange, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		e := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return e, nil
	}
	p.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	return newLimitExchange(conn), nil
}

func (p *limitPoster) close() error {
	var errs []error
	for _, e := range p.idle {
		errs = append(errs, e.conn.Close())
	}
	return errors.Join(errs...)
}
