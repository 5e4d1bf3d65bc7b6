package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

// limit is the least that the work can cost at all: the JSON of the one call is
// written and read by hand, by the length of its fixed parts, what several
// callers write goes out together, and nothing is checked.
func limit() implementation {
	return implementation{
		memory: limitInMemory,
		stdio:  limitOverStdio,
		http:   limitOverHTTP,
		serveStdio: func(context.Context) error {
			return serveLimit(newLimitStream(os.Stdin, os.Stdout))
		},
		serveHTTP: serveLimitHTTP,
	}
}

const (
	limitID           = `{"jsonrpc":"2.0","id":`
	limitRequest      = `,"method":"tools/call","params":{"name":"echo","arguments":{"message":"`
	limitRequestTail  = `"}}}`
	limitResponse     = `,"result":{"content":[{"type":"text","text":"`
	limitResponseTail = `"}]}}`
)

func appendLimitRequest[T string | []byte](to []byte, id int, text T) []byte {
	to = append(strconv.AppendInt(append(to, limitID...), int64(id), 10), limitRequest...)
	return append(append(to, text...), limitRequestTail...)
}

func appendLimitResponse(to []byte, id int, text []byte) []byte {
	to = append(strconv.AppendInt(append(to, limitID...), int64(id), 10), limitResponse...)
	return append(append(to, text...), limitResponseTail...)
}

// cutLimit takes a message apart, given the lengths of its fixed parts.
func cutLimit(message []byte, middle, tail int) (id int, text []byte) {
	at := len(limitID)
	for ; message[at] != ','; at++ {
		id = id*10 + int(message[at]-'0')
	}
	return id, message[at+middle : len(message)-tail]
}

// A limitWire carries lines, several at a time.
type limitWire interface {
	// receive returns at least one whole line, and nothing but whole lines, which
	// are valid until the next receive.
	receive() ([]byte, error)

	// send sends what build appends.
	send(build func([]byte) []byte) error

	io.Closer
}

// lines calls f with each line, without its end.
func lines(batch []byte, f func(line []byte)) {
	for len(batch) > 0 {
		end := bytes.IndexByte(batch, '\n')
		f(batch[:end])
		batch = batch[end+1:]
	}
}

// serveLimit answers a batch of requests with a batch of answers.
func serveLimit(wire limitWire) error {
	defer wire.Close()
	for {
		batch, err := wire.receive()
		if err != nil {
			return ignoreEOF(err)
		}
		err = wire.send(func(to []byte) []byte {
			lines(batch, func(line []byte) {
				id, text := cutLimit(line, len(limitRequest), len(limitRequestTail))
				to = append(appendLimitResponse(to, id, text), '\n')
			})
			return to
		})
		if err != nil {
			return ignoreEOF(err)
		}
	}
}

// A limitClient numbers its calls by the place where each waits.
type limitClient struct {
	wire limitWire
	over chan struct{} // closed when nothing more is read

	mu      sync.Mutex
	waiting []chan string
	free    []int
}

func newLimitClient(wire limitWire) *limitClient {
	c := &limitClient{wire: wire, over: make(chan struct{})}
	go c.receive()
	return c
}

func (c *limitClient) receive() {
	defer close(c.over)
	for {
		batch, err := c.wire.receive()
		if err != nil {
			return
		}
		c.mu.Lock()
		lines(batch, func(line []byte) {
			id, text := cutLimit(line, len(limitResponse), len(limitResponseTail))
			c.waiting[id] <- string(text)
		})
		c.mu.Unlock()
	}
}

// take is a place to wait at.
func (c *limitClient) take() (id int, answered chan string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.free) == 0 {
		c.waiting = append(c.waiting, make(chan string, 1))
		return len(c.waiting) - 1, c.waiting[len(c.waiting)-1]
	}
	id = c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	return id, c.waiting[id]
}

func (c *limitClient) give(id int) {
	c.mu.Lock()
	c.free = append(c.free, id)
	c.mu.Unlock()
}

func (c *limitClient) echo(text string) error {
	id, answered := c.take()
	err := c.wire.send(func(to []byte) []byte { return append(appendLimitRequest(to, id, text), '\n') })
	if err != nil {
		return err
	}
	select {
	case got := <-answered:
		c.give(id)
		return sameText(got, text)
	case <-c.over:
		return io.ErrUnexpectedEOF
	}
}

func (c *limitClient) prepare(text string) call {
	return func(context.Context) error { return c.echo(text) }
}

func (c *limitClient) session() *session {
	return &session{echo: c.prepare, close: func() error {
		err := c.wire.Close()
		<-c.over
		return err
	}}
}

// A limitQueue holds what was sent until it is taken, all at once.
type limitQueue struct {
	mu     sync.Mutex
	filled sync.Cond
	bytes  []byte
	closed bool
}

func newLimitQueue() *limitQueue {
	q := new(limitQueue)
	q.filled.L = &q.mu
	return q
}

func (q *limitQueue) put(build func([]byte) []byte) {
	q.mu.Lock()
	q.bytes = build(q.bytes)
	q.mu.Unlock()
	q.filled.Signal()
}

// take leaves spare in place of what it takes.
func (q *limitQueue) take(spare []byte) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.bytes) == 0 && !q.closed {
		q.filled.Wait()
	}
	if len(q.bytes) == 0 {
		return nil, io.EOF
	}
	taken := q.bytes
	q.bytes = spare[:0]
	return taken, nil
}

func (q *limitQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.filled.Signal()
}

// limitPipe is one side of a wire in memory.
type limitPipe struct {
	in, out *limitQueue
	taken   []byte
}

func (p *limitPipe) receive() (batch []byte, err error) {
	p.taken, err = p.in.take(p.taken)
	return p.taken, err
}

func (p *limitPipe) send(build func([]byte) []byte) error {
	p.out.put(build)
	return nil
}

func (p *limitPipe) Close() error {
	p.out.close()
	return nil
}

func limitInMemory(string, serving) dial {
	return func(context.Context) (*session, error) {
		requests, answers := newLimitQueue(), newLimitQueue()
		go serveLimit(&limitPipe{in: requests, out: answers}) // until the client closes
		return newLimitClient(&limitPipe{in: answers, out: requests}).session(), nil
	}
}

// A limitStream is one side of a wire of bytes. A sender that finds no other one writing
// writes all queued bytes.
type limitStream struct {
	in     io.Reader
	buffer []byte // what was read; whole lines up to done
	done   int

	out     io.WriteCloser
	mu      sync.Mutex
	writing bool
	queued  []byte
	spare   []byte
}

func newLimitStream(in io.Reader, out io.WriteCloser) *limitStream {
	return &limitStream{in: in, out: out, buffer: make([]byte, 0, 64<<10)}
}

func (s *limitStream) receive() ([]byte, error) {
	s.buffer = append(s.buffer[:0], s.buffer[s.done:]...)
	s.done = 0
	for {
		if len(s.buffer) == cap(s.buffer) {
			s.buffer = append(make([]byte, 0, 2*cap(s.buffer)), s.buffer...)
		}
		n, err := s.in.Read(s.buffer[len(s.buffer):cap(s.buffer)])
		s.buffer = s.buffer[:len(s.buffer)+n]
		if end := bytes.LastIndexByte(s.buffer, '\n'); end >= 0 {
			s.done = end + 1
			return s.buffer[:s.done], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *limitStream) send(build func([]byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = build(s.queued)
	if s.writing {
		return nil
	}
	s.writing = true
	defer func() { s.writing = false }()
	for len(s.queued) > 0 {
		now := s.queued
		s.queued = s.spare[:0]
		s.mu.Unlock()
		_, err := s.out.Write(now)
		s.mu.Lock()
		s.spare = now
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *limitStream) Close() error { return s.out.Close() }

func limitOverStdio(_ context.Context, _ string, command []string) (*session, error) {
	in, out, wait, err := start(command)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	s := newLimitClient(newLimitStream(out, in)).session()
	closeWire := s.close
	s.close = func() error { return errors.Join(closeWire(), wait()) }
	return s, nil
}
