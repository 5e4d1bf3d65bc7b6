package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// floor is the least that the work can cost with encoding/json: one struct, one
// reader, a map of the calls under way, and no limit, check or timeout.
func floor() implementation {
	return implementation{
		memory: floorInMemory(newFloorPipe),
		stdio:  floorOverStdio,
		http:   floorOverHTTP,
		serveStdio: func(context.Context) error {
			return newFloorServer(serving{}).serve(newFloorLines(os.Stdin, os.Stdout))
		},
		handler: newFloorHandler,
	}
}

// floorFrames is the floor on a wire that hands encoded frames over uncopied, as
// transport/inmem does.
func floorFrames() implementation { return implementation{memory: floorInMemory(newFloorFrames)} }

// A floorMessage is a JSON-RPC message with the least of MCP.
type floorMessage struct {
	JSONRPC string       `json:"jsonrpc"`
	ID      int64        `json:"id,omitempty"`
	Method  string       `json:"method,omitempty"`
	Params  *floorParams `json:"params,omitempty"`
	Result  *floorResult `json:"result,omitempty"`
}

type floorParams struct {
	Name      string    `json:"name,omitempty"`
	Arguments arguments `json:"arguments,omitzero"`
	Order     *order    `json:"order,omitempty"`
	Count     int       `json:"count,omitempty"`
}

type floorResult struct {
	Content []floorContent `json:"content,omitempty"`
	Order   *order         `json:"structuredContent,omitempty"`
	Tools   []floorTool    `json:"tools,omitempty"`
}

type floorContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type floorTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

func floorEchoRequest(id int64, text string) *floorMessage {
	return &floorMessage{JSONRPC: "2.0", ID: id, Method: "tools/call", Params: &floorParams{Name: "echo", Arguments: arguments{text}}}
}

// A floorServer is all that the floor's servers do.
type floorServer struct {
	serving
	listed []floorTool
}

func newFloorServer(o serving) *floorServer {
	s := &floorServer{serving: o}
	for i := range o.tools {
		s.listed = append(s.listed, floorTool{toolName(i), toolDescription, json.RawMessage(toolSchema)})
	}
	return s
}

// answer is nil for what has none: a notification, and a call that is parked.
// Flood is how many notifications the request asks for.
func (s *floorServer) answer(request []byte) (response []byte, flood int, err error) {
	var message floorMessage
	if err := json.Unmarshal(request, &message); err != nil {
		return nil, 0, err
	}
	answer := floorMessage{JSONRPC: "2.0", ID: message.ID}
	switch message.Method {
	case "tools/call":
		switch message.Params.Name {
		case "park":
			return nil, 0, nil
		case "flood":
			flood = message.Params.Count
		}
		answer.Result, err = message.Params.result()
	case "tools/list":
		answer.Result = &floorResult{Tools: s.listed}
	case "initialize":
		answer.Result = &floorResult{}
	case "notifications/initialized":
		return nil, 0, nil
	case "notifications/progress":
		s.notified()
		return nil, 0, nil
	default:
		return nil, 0, fmt.Errorf("the floor has no method %q", message.Method)
	}
	if err != nil {
		return nil, 0, err
	}
	response, err = json.Marshal(answer)
	return response, flood, err
}

// result has an order as text, too, as a result of MCP does.
func (p *floorParams) result() (*floorResult, error) {
	text := p.Arguments.Message
	if p.Order != nil {
		encoded, err := json.Marshal(p.Order)
		if err != nil {
			return nil, err
		}
		text = string(encoded)
	}
	return &floorResult{Content: []floorContent{{"text", text}}, Order: p.Order}, nil
}

// serve serves one message after the other until the client closes. A call that
// is parked has a goroutine, as it has in any server in Go.
func (s *floorServer) serve(wire floorWire) error {
	over := make(chan struct{})
	defer close(over)
	defer wire.Close()
	for {
		request, err := wire.read()
		if err != nil {
			return ignoreEOF(err)
		}
		answer, flood, err := s.answer(request)
		if err != nil {
			return err
		}
		if flood > 0 {
			go floodFloor(wire, flood) // until the wire closes
		}
		if answer == nil {
			if s.parks > 0 {
				go func() { <-over }()
			}
			continue
		}
		if err := wire.write(answer); err != nil {
			return ignoreEOF(err)
		}
	}
}

func floodFloor(wire floorWire, count int) error {
	for range count {
		frame, err := json.Marshal(&floorMessage{JSONRPC: "2.0", Method: "notifications/message", Params: &floorParams{Name: "news"}})
		if err != nil {
			return err
		}
		if err := wire.write(frame); err != nil {
			return ignoreEOF(err)
		}
	}
	return nil
}

// A floorWire carries encoded messages. What read returns is valid until the
// next read.
type floorWire interface {
	read() ([]byte, error)
	write([]byte) error
	io.Closer
}

type floorChannel struct {
	in  <-chan []byte
	out chan<- []byte
}

// newFloorFrames holds as many frames as transport/inmem.
func newFloorFrames() (client, server floorWire) {
	requests, answers := make(chan []byte, 256), make(chan []byte, 256)
	return floorChannel{answers, requests}, floorChannel{requests, answers}
}

func (f floorChannel) read() ([]byte, error) {
	frame, ok := <-f.in
	if !ok {
		return nil, io.EOF
	}
	return frame, nil
}

func (f floorChannel) write(frame []byte) error {
	f.out <- frame
	return nil
}

func (f floorChannel) Close() error {
	close(f.out)
	return nil
}

// floorLines carry a message a line.
type floorLines struct {
	in      *bufio.Reader
	long    []byte // a line that is longer than what in holds
	writing sync.Mutex
	out     io.WriteCloser
}

func newFloorLines(in io.Reader, out io.WriteCloser) *floorLines {
	return &floorLines{in: bufio.NewReader(in), out: out}
}

// newFloorPipe is the wire of other pipes, in memory.
func newFloorPipe() (client, server floorWire) {
	clientSide, theirs := net.Pipe()
	return newFloorLines(clientSide, clientSide), newFloorLines(theirs, theirs)
}

func (l *floorLines) read() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	l.long = l.long[:0]
	for err == bufio.ErrBufferFull {
		l.long = append(l.long, line...)
		line, err = l.in.ReadSlice('\n')
	}
	l.long = append(l.long, line...)
	return l.long, err
}

func (l *floorLines) write(frame []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.out.Write(append(frame, '\n'))
	return err
}

func (l *floorLines) Close() error { return l.out.Close() }

// A floorClient makes calls that may overlap: each waits for the answer with
// its id.
type floorClient struct {
	wire     floorWire
	received func()

	mu      sync.Mutex
	lastID  int64
	pending map[int64]chan<- *floorMessage

	over chan struct{} // closed when nothing more is read
	err  error         // why; set before
}

func newFloorClient(wire floorWire, received func()) *floorClient {
	c := &floorClient{wire: wire, received: received, pending: make(map[int64]chan<- *floorMessage), over: make(chan struct{})}
	go func() {
		defer close(c.over)
		c.err = c.receive()
	}()
	return c
}

func (c *floorClient) receive() error {
	for {
		frame, err := c.wire.read()
		if err != nil {
			return ignoreEOF(err)
		}
		answer := new(floorMessage)
		if err := json.Unmarshal(frame, answer); err != nil {
			return err
		}
		if answer.Method != "" {
			c.received()
			continue
		}
		c.mu.Lock()
		waiting := c.pending[answer.ID]
		delete(c.pending, answer.ID)
		c.mu.Unlock()
		waiting <- answer
	}
}

// call gives its request an id, sends it, and waits.
func (c *floorClient) call(ctx context.Context, request *floorMessage) (*floorResult, error) {
	answered := make(chan *floorMessage, 1)
	c.mu.Lock()
	c.lastID++
	request.ID = c.lastID
	c.pending[request.ID] = answered
	c.mu.Unlock()
	if err := c.send(request); err != nil {
		return nil, err
	}
	select {
	case answer := <-answered:
		return answer.Result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.over:
		return nil, errors.Join(io.ErrUnexpectedEOF, c.err)
	}
}

func (c *floorClient) send(message *floorMessage) error {
	frame, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.wire.write(frame)
}

// close waits until the server has closed, too.
func (c *floorClient) close() error {
	err := c.wire.Close()
	<-c.over
	return errors.Join(err, c.err)
}

func (c *floorClient) session() *session {
	return &session{
		echo: func(text string) call {
			return func(ctx context.Context) error {
				result, err := c.call(ctx, floorEchoRequest(0, text))
				if err != nil {
					return err
				}
				return sameText(result.Content[0].Text, text)
			}
		},
		order: func(o order) call {
			return func(ctx context.Context) error {
				result, err := c.call(ctx, &floorMessage{JSONRPC: "2.0", Method: "tools/call", Params: &floorParams{Name: "order", Order: &o}})
				if err != nil {
					return err
				}
				return sameOrder(*result.Order, o)
			}
		},
		list: func(ctx context.Context) (int, error) {
			result, err := c.call(ctx, &floorMessage{JSONRPC: "2.0", Method: "tools/list"})
			if err != nil {
				return 0, err
			}
			return len(result.Tools), nil
		},
		notify: func(context.Context) error {
			return c.send(&floorMessage{JSONRPC: "2.0", Method: "notifications/progress", Params: &floorParams{Name: "progress"}})
		},
		park: func(ctx context.Context) error {
			_, err := c.call(ctx, &floorMessage{JSONRPC: "2.0", Method: "tools/call", Params: &floorParams{Name: "park"}})
			return err
		},
		flood: func(ctx context.Context, count int) error {
			_, err := c.call(ctx, &floorMessage{JSONRPC: "2.0", Method: "tools/call", Params: &floorParams{Name: "flood", Count: count}})
			return err
		},
		close: c.close,
	}
}

// open does what initialize does in MCP: one call, and a notification.
func (c *floorClient) open(ctx context.Context) (*session, error) {
	if _, err := c.call(ctx, &floorMessage{JSONRPC: "2.0", Method: "initialize"}); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if err := c.send(&floorMessage{JSONRPC: "2.0", Method: "notifications/initialized"}); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c.session(), nil
}

func floorInMemory(pipe func() (client, server floorWire)) func(string, serving) dial {
	return func(_ string, o serving) dial {
		server := newFloorServer(o)
		return func(ctx context.Context) (*session, error) {
			clientSide, theirs := pipe()
			go server.serve(theirs) // until the client side closes
			return newFloorClient(clientSide, o.received).open(ctx)
		}
	}
}

func floorOverStdio(ctx context.Context, _ string, command []string) (*session, error) {
	in, out, wait, err := start(command)
	if err != nil {
		return nil, err
	}
	s, err := newFloorClient(newFloorLines(out, in), nil).open(ctx)
	if err != nil {
		return nil, errors.Join(err, wait())
	}
	closeWire := s.close
	s.close = func() error { return errors.Join(closeWire(), wait()) }
	return s, nil
}

// ignoreEOF takes the end of a wire, whichever side has closed it, for no error.
func ignoreEOF(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
