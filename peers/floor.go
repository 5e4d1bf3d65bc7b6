package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
)

// A floorCall is a JSON-RPC request, and its answer, with the least of MCP: what
// a call costs before anything is made safe.
type floorCall struct {
	JSONRPC string       `json:"jsonrpc"`
	ID      int64        `json:"id"`
	Method  string       `json:"method,omitempty"`
	Params  *floorParams `json:"params,omitempty"`
	Result  *floorResult `json:"result,omitempty"`
}

type floorParams struct {
	Name      string  `json:"name"`
	Arguments message `json:"arguments"`
}

type floorResult struct {
	Content []floorContent `json:"content"`
}

type floorContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func floorRequest(id int64, text string) ([]byte, error) {
	return json.Marshal(floorCall{JSONRPC: "2.0", ID: id, Method: "tools/call", Params: &floorParams{"echo", message{text}}})
}

// floorEcho is all that the floor's server does.
func floorEcho(request []byte) (answer []byte, err error) {
	var call floorCall
	if err := json.Unmarshal(request, &call); err != nil {
		return nil, err
	}
	return json.Marshal(floorCall{JSONRPC: "2.0", ID: call.ID, Result: &floorResult{[]floorContent{{"text", call.Params.Arguments.Message}}}})
}

// A floorWire carries encoded messages.
type floorWire interface {
	read() ([]byte, error)
	write([]byte) error
	io.Closer
}

// floorFrames hand messages over uncopied, as transport/inmem does, and hold as
// many.
type floorFrames struct {
	in  <-chan []byte
	out chan<- []byte
}

func newFloorFrames() (client, server floorFrames) {
	requests, answers := make(chan []byte, 256), make(chan []byte, 256)
	return floorFrames{answers, requests}, floorFrames{requests, answers}
}

func (f floorFrames) read() ([]byte, error) {
	frame, ok := <-f.in
	if !ok {
		return nil, io.EOF
	}
	return frame, nil
}

func (f floorFrames) write(frame []byte) error {
	f.out <- frame
	return nil
}

func (f floorFrames) Close() error {
	close(f.out)
	return nil
}

// floorLines carry a message a line.
type floorLines struct {
	in      *bufio.Reader
	writing sync.Mutex
	out     io.WriteCloser
}

func newFloorLines(in io.Reader, out io.WriteCloser) *floorLines {
	return &floorLines{in: bufio.NewReader(in), out: out}
}

func (l *floorLines) read() ([]byte, error) { return l.in.ReadSlice('\n') }

func (l *floorLines) write(frame []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.out.Write(append(frame, '\n'))
	return err
}

func (l *floorLines) Close() error { return l.out.Close() }

// serveFloorOn serves one call after the other until its client closes.
func serveFloorOn(wire floorWire) error {
	defer wire.Close()
	for {
		request, err := wire.read()
		if err != nil {
			return ignoreEOF(err)
		}
		answer, err := floorEcho(request)
		if err != nil {
			return err
		}
		if err := wire.write(answer); err != nil {
			return err
		}
	}
}

func serveFloor(context.Context, []string) error {
	return serveFloorOn(newFloorLines(os.Stdin, os.Stdout))
}

// A floorClient makes calls that may overlap: each waits for the answer with
// its id.
type floorClient struct {
	wire floorWire

	mu      sync.Mutex
	lastID  int64
	pending map[int64]chan<- *floorCall

	over chan struct{} // closed when nothing more is read
	err  error         // why; set before
}

func newFloorClient(wire floorWire) *floorClient {
	c := &floorClient{wire: wire, pending: make(map[int64]chan<- *floorCall), over: make(chan struct{})}
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
		answer := new(floorCall)
		if err := json.Unmarshal(frame, answer); err != nil {
			return err
		}
		c.mu.Lock()
		waiting := c.pending[answer.ID]
		delete(c.pending, answer.ID)
		c.mu.Unlock()
		waiting <- answer
	}
}

func (c *floorClient) echo(text string) (string, error) {
	answered := make(chan *floorCall, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.pending[id] = answered
	c.mu.Unlock()
	request, err := floorRequest(id, text)
	if err != nil {
		return "", err
	}
	if err := c.wire.write(request); err != nil {
		return "", err
	}
	select {
	case answer := <-answered:
		return answer.Result.Content[0].Text, nil
	case <-c.over:
		return "", errors.Join(io.ErrUnexpectedEOF, c.err)
	}
}

// Close waits until the server has closed, too.
func (c *floorClient) Close() error {
	err := c.wire.Close()
	<-c.over
	return errors.Join(err, c.err)
}

// startFloor runs the floor's server as a child process.
func startFloor(command []string) (client *floorClient, wait func() error, err error) {
	child := exec.Command(command[0], command[1:]...)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := child.Start(); err != nil {
		return nil, nil, err
	}
	return newFloorClient(newFloorLines(out, in)), child.Wait, nil
}

// ignoreEOF takes the end of a wire, whichever side has closed it, for no error.
func ignoreEOF(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

func handleFloor([]string) (http.Handler, func(context.Context) error) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		request, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := floorEcho(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	}
	return http.HandlerFunc(echo), func(context.Context) error { return nil }
}

// A floorSession can call over HTTP, and close.
type floorSession struct {
	Session
	client *http.Client
	url    string
}

func connectFloor(_ context.Context, server Endpoint, _ string) (Session, error) {
	return floorSession{client: &http.Client{Transport: newPool()}, url: server.URL}, nil
}

func (s floorSession) CallTool(ctx context.Context, call Call) (*Result, error) {
	text, _ := call.Arguments["message"].(string)
	body, err := floorRequest(1, text)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer floorCall
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	return &Result{Text: answer.Result.Content[0].Text}, nil
}

func (s floorSession) Close(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}
