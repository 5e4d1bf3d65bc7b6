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
	Again   bool            `json:"again,omitempty"` // it was refused for its challenge, and may be asked again with a new one
	Data    json.RawMessage `json:"data,omitempty"`
}

// A ControlError says that a node has refused or failed what it was asked for.
type ControlError struct {
	Node, Op string
	Reason   string
}

func (e *ControlError) Error() string {
	return fmt.Sprintf("cluster: node %q did not %s: %s", e.Node, e.Op, e.Reason)
}

var (
	errTooLarge  = fmt.Errorf("a control message has more than %d bytes", maxControl)
	errNotOpened = errors.New("the response does not open: the node has another key")
)

// handle registers the function that does an operation when another node asks for it. It
// replaces an earlier one. The function is called on a goroutine of its own, with a context of
// controlTimeout, and returns what encoding/json can encode.
func (n *Node) handle(op string, f operationFunc) {
	n.controls.mu.Lock()
	defer n.controls.mu.Unlock()
	if n.controls.byOp == nil {
		n.controls.byOp = map[string]operationFunc{}
	}
	n.controls.byOp[op] = f
}

// controlSubjectOf is the subject that one process answers: another process with the same
// name, before or after it, answers another one.
func controlSubjectOf(node, epoch string) string { return controlSubject + "." + node + "." + epoch }

// ask asks a node for an operation and waits for its answer, at most controlTimeout. An error
// that matches ErrNoResponder says that there is no such node, or that it has ended or cannot
// reach the Engine. If into is not nil, it receives what the operation has returned.
func (n *Node) ask(ctx context.Context, node, op string, args, into any) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	if node == n.options.Node {
		return n.askSelf(ctx, op, args, into)
	}
	m, found := n.Member(node)
	if !found {
		return fmt.Errorf("cluster: no node is named %q: %w", node, ErrNoResponder)
	}
	response, err := n.askProcess(ctx, m.owner(), m.challenge, op, args)
	if errors.Is(err, ErrNoResponder) || err == nil && response.Again { // the watch may be late
		var lease leaseRecord
		if lease, err = n.readLease(ctx, node); err == nil {
			response, err = n.askProcess(ctx, owner{Node: node, Epoch: lease.Epoch}, lease.Challenge, op, args)
		}
	}
	if err != nil {
		return fmt.Errorf("cluster: asking node %q to %s: %w", node, op, err)
	}
	return response.decode(op, into)
}

// askUntilAnswered asks a node, and asks again while the Engine cannot be reached, or while the node has a lease and does not answer.
func (n *Node) askUntilAnswered(ctx context.Context, node, op string, args, into any) error {
	return n.persist(ctx, func(ctx context.Context) error {
		err := n.ask(ctx, node, op, args, into)
		if _, lives := n.Member(node); lives && errors.Is(err, ErrNoResponder) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err) // it may be looking for the Engine
		}
		return err
	})
}

// askProcess asks one process.
func (n *Node) askProcess(ctx context.Context, of owner, challenge, op string, args any) (controlResponse, error) {
	subject := controlSubjectOf(of.Node, of.Epoch)
	request, err := newRequest(op, args, map[string]string{of.Node: challenge})
	if err != nil {
		return controlResponse{}, err
	}
	sealed := n.seal(sealRequest, subject, encode(request))
	if len(sealed) > maxControl {
		return controlResponse{}, errTooLarge
	}
	body, err := n.engine.Request(ctx, subject, sealed)
	if err != nil {
		return controlResponse{}, err
	}
	return n.openResponse(subject, request.ID, body)
}

// readLease reads the lease of a node.
func (n *Node) readLease(ctx context.Context, node string) (leaseRecord, error) {
	got, err := n.leases.Get(ctx, nodePrefix+node)
	if errors.Is(err, ErrNotFound) {
		return leaseRecord{}, ErrNoResponder
	}
	if err != nil {
		return leaseRecord{}, err
	}
	return n.openLease(nodePrefix+node, got.Value)
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
	if err := decodeRecord(plain, &r); err != nil {
		return r, fmt.Errorf("the response cannot be read: %w", err)
	}
	return r, nil
}

// answerControl begins to answer control requests.
func (n *Node) answerControl(ctx context.Context) error {
	for _, subject := range []string{controlSubjectOf(n.options.Node, n.epoch), controlSubject} {
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
	return controlResponse{Version: recordVersion, Node: n.options.Node, Error: err.Error(), Again: errors.Is(err, errReplayed)}
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
	ctx, cancel := context.WithTimeout(ctx, controlTimeout) // then nobody waits for the answer
	defer cancel()
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
