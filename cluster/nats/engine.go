package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
)

// room is the number of bytes that a message may need besides its value, for its headers.
const room = 1024

var (
	errClosed = fmt.Errorf("%w: it is closed", cluster.ErrUnavailable)
	errLost   = fmt.Errorf("%w: the connection was lost", cluster.ErrUnavailable)
)

// An engine implements cluster.Engine.
type engine struct {
	options        Options
	log            *slog.Logger
	messages       string // prefix of the subjects of messages
	requests       string // and of those of requests
	dialing        context.Context
	stopDialing    context.CancelFunc
	conn           *natsgo.Conn        // nil until it was connected once
	js             jetstream.JetStream // of conn
	ended          chan struct{}       // closed when conn calls nothing any more
	sent, received atomic.Uint64

	mu         sync.Mutex
	connected  bool
	closed     bool
	changes    chan struct{}   // closed when connected changes
	life       context.Context // of the connection that there is
	endLife    context.CancelCauseFunc
	operations map[*operation]bool
	misses     map[*natsgo.Subscription]func() // what to call when messages may be lost
	stops      map[*stopper]bool               // of all that was subscribed and answered
}

func newEngine(o Options) *engine {
	e := &engine{
		options: o, log: o.Log.With("cluster", o.Cluster), messages: "bl." + o.Cluster + ".pub.", requests: "bl." + o.Cluster + ".req.",
		changes: make(chan struct{}), ended: make(chan struct{}),
		operations: map[*operation]bool{}, misses: map[*natsgo.Subscription]func(){}, stops: map[*stopper]bool{},
	}
	e.dialing, e.stopDialing = context.WithCancel(context.Background())
	e.life, e.endLife = context.WithCancelCause(context.Background())
	return e
}

// attach begins to use a connection.
func (e *engine) attach(conn *natsgo.Conn, js jetstream.JetStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn, e.js = conn, js
	e.connected = conn.IsConnected() // otherwise it was lost by now, and reconnected follows
}

// Connected implements cluster.Engine.
func (e *engine) Connected() (bool, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.connected, e.changes
}

func (e *engine) change(connected bool) {
	e.connected = connected
	close(e.changes)
	e.changes = make(chan struct{})
}

// disconnected is called by the connection when it is lost, before it is made again.
func (e *engine) disconnected(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !e.connected {
		return
	}
	e.change(false)
	e.endLife(errLost)
	e.log.Warn("the connection to NATS was lost", "err", err)
}

// reconnected is called by the connection when it is back, and everything is subscribed again.
func (e *engine) reconnected() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if e.connected { // it was lost and is back before anybody noticed
		e.endLife(errLost)
	}
	e.life, e.endLife = context.WithCancelCause(context.Background())
	e.change(true)
	for _, miss := range e.misses {
		miss()
	}
	if e.options.Dial != nil { // then the URL is only a name
		e.log.Info("the connection to NATS is back")
		return
	}
	e.log.Info("the connection to NATS is back", "server", e.conn.ConnectedUrlRedacted())
}

// gone is called by the connection when it is closed.
func (e *engine) gone() {
	defer close(e.ended)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.log.Error("NATS has ended the connection for good; restart this process", "err", e.conn.LastError())
	if e.connected {
		e.change(false)
		e.endLife(errLost)
	}
}

// failed is called by the connection when a server or a subscription reports a problem.
func (e *engine) failed(sub *natsgo.Subscription, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, natsgo.ErrSlowConsumer):
		if miss := e.misses[sub]; miss != nil {
			miss()
		}
		return // whoever subscribed learns it
	case errors.Is(err, natsgo.ErrPermissionViolation):
		for op := range e.operations {
			if slices.ContainsFunc(op.on, func(on string) bool { return strings.Contains(err.Error(), on) }) {
				op.cancel(denied(err))
			}
		}
	}
	e.log.Warn("NATS reports a problem", "err", err)
}

func denied(err error) error {
	return fmt.Errorf("%w: %w: %w", cluster.ErrUnavailable, cluster.ErrDenied, err)
}

// An operation is the context of something that is sent and answered. It also ends when the
// connection is lost.
type operation struct {
	context.Context
	engine *engine
	on     []string // parts of the text of an error that is about this operation; there is only a text
	cancel context.CancelCauseFunc
	detach func() bool // from the life of the connection
}

// subjectOf returns the text by which an error about a subject is recognized.
func subjectOf(subject string) string { return `"` + subject + `"` }

// begin begins an operation, or returns why nothing can be sent. The caller ends it.
func (e *engine) begin(ctx context.Context, on ...string) (*operation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, errClosed
	case ctx.Err() != nil:
		return nil, outOfTime(ctx)
	case !e.connected:
		return nil, fmt.Errorf("%w: the connection is being made again", cluster.ErrUnavailable)
	}
	op := &operation{engine: e, on: on}
	op.Context, op.cancel = context.WithCancelCause(ctx)
	life := e.life
	op.detach = context.AfterFunc(life, func() { op.cancel(context.Cause(life)) })
	e.operations[op] = true
	return op, nil
}

func (op *operation) end() {
	op.engine.mu.Lock()
	delete(op.engine.operations, op)
	op.engine.mu.Unlock()
	op.detach()
	op.cancel(nil)
}

// explain translates an error of the operation.
func (op *operation) explain(err error) error { return explain(op, err) }

// Messages implements cluster.Engine.
func (e *engine) Messages() (sent, received uint64) { return e.sent.Load(), e.received.Load() }

// LocalAddress implements cluster.Engine.
func (e *engine) LocalAddress() string {
	host, _, err := net.SplitHostPort(e.conn.LocalAddr())
	if err != nil {
		return "127.0.0.1" // both are in one process
	}
	return host
}

// Close implements cluster.Engine.
func (e *engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	if first {
		e.change(false)
		e.endLife(errClosed)
	}
	var stops []*stopper
	for s := range e.stops {
		stops = append(stops, s)
	}
	e.mu.Unlock()
	e.stopDialing()
	for _, s := range stops {
		s.stop()
	}
	if e.conn != nil {
		e.conn.Close()
		<-e.ended
	}
	return nil
}
