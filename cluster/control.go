package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	controlSubject = "ctl"
	controlTimeout = 2 * time.Second

	// maxControl is the size of the longest control message, sealed, in bytes.
	maxControl = 64 << 10
)

// controls are the operations that other nodes can ask this one for.
type controls struct {
	mu    sync.Mutex
	byOp  map[string]operationFunc
	stops []func()
}

type operationFunc func(ctx context.Context, args json.RawMessage) (any, error)

// A controlRequest asks nodes for an operation.
type controlRequest struct {
	Version int               `json:"v"`
	ID      string            `json:"id"`
	To      map[string]string `json:"to"` // the challenge of each node that shall do it
	Op      string            `json:"op"`
	Args    json.RawMessage   `json:"args,omitempty"`
}

// A controlResponse is the answer of one node.
type controlResponse struct {
	Version int             `json:"v"`
	Node    string          `json:"node"`
	OK      bool            `json:"ok"`
	Error   string          `json:"error,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// A ControlError says that a node has refused or failed what it was asked for.
type ControlError struct {
	Node, Op string
	Reason   string
}

func (e *ControlError) Error() string {
	return fmt.Sprintf("cluster: node %q failed to %s: %s", e.Node, e.Op, e.Reason)
}

var (
	errNoMember  = errors.New("cluster: there is no such node")
	errTooLarge  = fmt.Errorf("cluster: a control message has more than %d bytes", maxControl)
	errNotOpened = errors.New("cluster: a response does not open: the node has another key")
)

// handle registers the function that does an operation when another node asks for it. The
// function is called on a goroutine of its own, and returns what encoding/json can encode.
func (n *Node) handle(op string, f operationFunc) {
	n.controls.mu.Lock()
	defer n.controls.mu.Unlock()
	if n.controls.byOp == nil {
		n.controls.byOp = map[string]operationFunc{}
	}
	n.controls.byOp[op] = f
}

// ask asks a node for an operation and waits for its answer, at most controlTimeout. An error
// that matches ErrNoResponder says that the node cannot be reached over the Engine. If into is
// not nil, it receives what the operation has returned.
func (n *Node) ask(ctx context.Context, node, op string, args, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, controlTimeout, fmt.Errorf("cluster: node %q does not answer: %w", node, ErrUnavailable))
	defer cancel()
	if node == n.options.Node {
		return n.askSelf(ctx, op, args, into)
	}
	m, found := n.Member(node)
	if !found {
		return fmt.Errorf("%w: %q", errNoMember, node)
	}
	subject := controlSubject + "." + node
	request, err := newRequest(op, args, map[string]string{node: m.challenge})
	if err != nil {
		return err
	}
	sealed := n.seal(sealRequest, subject, encode(request))
	if len(sealed) > maxControl {
		return errTooLarge
	}
	body, err := n.engine.Request(ctx, subject, sealed)
	if err != nil {
		return err
	}
	response, err := n.openResponse(subject, request.ID, body)
	if err != nil {
		return err
	}
	return response.decode(op, into)
}

func (n *Node) askSelf(ctx context.Context, op string, args, into any) error {
	request, err := newRequest(op, args, nil)
	if err != nil {
		return err
	}
	return n.perform(ctx, request).decode(op, into)
}

func newRequest(op string, args any, to map[string]string) (controlRequest, error) {
	r := controlRequest{Version: recordVersion, ID: rand.Text(), To: to, Op: op}
	if args == nil {
		return r, nil
	}
	var err error
	r.Args, err = json.Marshal(args)
	return r, err
}

func (r controlResponse) decode(op string, into any) error {
	if !r.OK {
		return &ControlError{r.Node, op, r.Error}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(r.Data, into)
}

// openResponse opens a response. It opens only for the request that it answers.
func (n *Node) openResponse(subject, id string, body []byte) (controlResponse, error) {
	var r controlResponse
	plain, err := n.open(sealResponse, subject+" "+id, body)
	if err != nil {
		return r, errNotOpened
	}
	return r, decodeRecord(plain, &r)
}

// answerControl begins to answer control requests.
func (n *Node) answerControl(ctx context.Context) error {
	for _, subject := range []string{controlSubject + "." + n.options.Node, controlSubject} {
		err := n.persist(ctx, func(ctx context.Context) error {
			stop, err := n.engine.Answer(ctx, subject, func(ctx context.Context, body []byte) []byte {
				return n.answer(ctx, subject, body)
			})
			if err == nil {
				n.controls.mu.Lock()
				n.controls.stops = append(n.controls.stops, stop)
				n.controls.mu.Unlock()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *controls) stop() {
	c.mu.Lock()
	stops := c.stops
	c.stops = nil
	c.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// answer does what a request asks for.
func (n *Node) answer(ctx context.Context, subject string, body []byte) []byte {
	request, err := n.admit(subject, body)
	var response controlResponse
	if err != nil {
		n.messages.Add(1)
		response = n.refusal(err)
	} else {
		response = n.perform(ctx, request)
	}
	sealed := n.seal(sealResponse, subject+" "+request.ID, encode(response))
	if len(sealed) > maxControl {
		sealed = n.seal(sealResponse, subject+" "+request.ID, encode(n.refusal(errTooLarge)))
	}
	return sealed
}

var (
	errUnreadable = errors.New("the request does not open: another key, or changed")
	errNoRequest  = errors.New("it is no request of a known version")
	errReplayed   = errors.New("the request is old, or was done before: ask again")
	errUnknownOp  = errors.New("the operation is unknown to this version")
)

// admit opens a request, and checks that it was made for this node, lately, and not done yet.
func (n *Node) admit(subject string, body []byte) (controlRequest, error) {
	var r controlRequest
	if len(body) > maxControl {
		return r, errTooLarge
	}
	plain, err := n.open(sealRequest, subject, body)
	if err != nil {
		return r, errUnreadable
	}
	if decodeRecord(plain, &r) != nil {
		return controlRequest{}, errNoRequest
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.challenge.accept(n.clock(), r.To[n.options.Node], r.ID) {
		return r, errReplayed
	}
	return r, nil
}

func (n *Node) refusal(err error) controlResponse {
	return controlResponse{Version: recordVersion, Node: n.options.Node, Error: err.Error()}
}

// perform does an operation. A panic of its function is an error.
func (n *Node) perform(ctx context.Context, r controlRequest) (response controlResponse) {
	n.controls.mu.Lock()
	f := n.controls.byOp[r.Op]
	n.controls.mu.Unlock()
	if f == nil {
		n.messages.Add(1)
		return n.refusal(errUnknownOp)
	}
	defer func() {
		if value := recover(); value != nil {
			n.log.Error("cluster: an operation panicked", "op", r.Op, "panic", value)
			response = n.refusal(errors.New("the operation panicked"))
		}
	}()
	result, err := f(ctx, r.Args)
	if err != nil {
		return n.refusal(err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		return n.refusal(err)
	}
	return controlResponse{Version: recordVersion, Node: n.options.Node, OK: true, Data: data}
}
