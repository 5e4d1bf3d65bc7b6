package nats

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	heartbeat = 3 * time.Second
	silence   = 3 * heartbeat   // then the server has forgotten the consumer
	slowLoop  = markerTTL / 2   // a loop that takes longer for an entry may miss marks
	forgotten = 5 * time.Second // then the server removes a consumer without a subscription
)

var errMissed = errors.New("something may have been missed")

// Watch implements cluster.Bucket.
func (b *bucket) Watch(ctx context.Context, prefix string) iter.Seq[cluster.Entry] {
	return func(yield func(cluster.Entry) bool) {
		if rules.Prefix(prefix) != nil {
			return
		}
		w := &watch{bucket: b, prefix: prefix, known: map[string]bool{}, yield: yield}
		for attempt := 1; ; attempt++ {
			err := b.do(ctx, w.run)
			if w.left || ctx.Err() != nil || errors.Is(err, errClosed) {
				return
			}
			if w.current {
				attempt = 1
			}
			if !b.engine.awaitConnection(ctx) || wait.Sleep(ctx, reconnectDelay(attempt)) != nil {
				return
			}
		}
	}
}

// awaitConnection waits for a connection, and reports whether there is one.
func (e *engine) awaitConnection(ctx context.Context) bool {
	for {
		connected, changed := e.Connected()
		if connected {
			return true
		}
		e.mu.Lock()
		closed := e.closed
		e.mu.Unlock()
		if closed {
			return false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// A watch is a loop over Watch. Each run yields everything, and then the changes.
type watch struct {
	bucket *bucket
	prefix string
	known  map[string]bool // the keys that exist for the loop
	yield  func(cluster.Entry) bool
	left   bool // the loop was left

	// Of a run:
	gone    map[string]bool // keys of known that did not come yet
	current bool            // Current was yielded
}

// run returns when the loop is left, or with an error when something may have been missed.
func (w *watch) run(op *operation) error {
	w.current = false
	w.gone = make(map[string]bool, len(w.known))
	for key := range w.known {
		w.gone[key] = true
	}
	return w.bucket.consume(op, w.prefix, false, func(key string, m *natsgo.Msg, revision uint64) error {
		return w.take(key, m, revision)
	}, w.complete)
}

func (w *watch) take(key string, m *natsgo.Msg, revision uint64) error {
	delete(w.gone, key)
	if deleted(m.Header) {
		if !w.known[key] && !w.current {
			return nil // the loop has never seen it
		}
		delete(w.known, key)
		return w.pass(cluster.Entry{Key: key, Revision: revision, Deleted: true})
	}
	w.known[key] = true
	return w.pass(cluster.Entry{Key: key, Value: m.Data, Revision: revision})
}

// complete is called when everything that exists has come.
func (w *watch) complete() error {
	for key := range w.gone {
		delete(w.known, key)
		if err := w.pass(cluster.Entry{Key: key, Deleted: true}); err != nil {
			return err
		}
	}
	w.current = true
	return w.pass(cluster.Entry{Current: true})
}

// errLeft says that a loop was left.
var errLeft = errors.New("the loop was left")

func (w *watch) pass(entry cluster.Entry) error {
	began := time.Now()
	if !w.yield(entry) {
		w.left = true
		return errLeft
	}
	if time.Since(began) > slowLoop {
		return errMissed
	}
	return nil
}

// Keys implements cluster.Bucket.
func (b *bucket) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := rules.Prefix(prefix); err != nil {
			yield("", err)
			return
		}
		done, seen := false, map[string]bool{} // after an interruption everything comes again
		err := b.do(ctx, func(op *operation) error {
			take := func(key string, m *natsgo.Msg, _ uint64) error {
				if deleted(m.Header) || seen[key] {
					return nil
				}
				seen[key] = true
				if done = !yield(key, nil); done {
					return errLeft
				}
				return nil
			}
			complete := func() error {
				done = true
				return errLeft
			}
			return b.consume(op, prefix, true, take, complete)
		})
		if !done {
			yield("", fmt.Errorf("list the keys of bucket %s: %w", b.options.Name, err))
		}
	}
}

// consume calls take with the message of each key with a prefix, complete when all that exist
// have come, and take with each change, until one of them returns an error. It returns that, or
// why something may have been missed.
func (b *bucket) consume(op *operation, prefix string, keysOnly bool, take func(key string, m *natsgo.Msg, revision uint64) error, complete func() error) error {
	e := b.engine
	inbox := e.conn.NewInbox()
	sub, err := e.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // without a connection the server has forgotten it
	info, err := b.pushTo(op, inbox, b.prefix+prefix+">", keysOnly)
	if err != nil {
		return err
	}
	// Nobody waits for the answer: without a subscription the server removes the consumer, too.
	defer e.conn.Publish("$JS.API.CONSUMER.DELETE."+b.stream+"."+info.Name, nil) //nolint:errcheck // see above
	c := &consumption{bucket: b, take: take, complete: complete, missing: info.NumPending + info.Delivered.Consumer}
	if c.missing == 0 {
		if err := complete(); err != nil {
			return err
		}
	}
	for {
		m, err := b.next(op, sub)
		switch {
		case err != nil:
		case m.Header.Get(statusHeader) != "":
			err = e.flow(m)
		default:
			err = c.receive(m)
		}
		if err != nil {
			return err
		}
	}
}

// A consumption is what consume knows of the messages that have come.
type consumption struct {
	bucket   *bucket
	take     func(key string, m *natsgo.Msg, revision uint64) error
	complete func() error
	number   uint64 // of the last message
	missing  uint64 // messages of keys that existed at first and did not come yet
}

// receive takes the next message, which says itself how many there were before, and how many of the first ones follow.
func (c *consumption) receive(m *natsgo.Msg) error {
	at, err := m.Metadata()
	if err != nil {
		return err
	}
	if c.number++; at.Sequence.Consumer != c.number {
		return errMissed
	}
	c.bucket.engine.received.Add(1)
	if err := c.take(strings.TrimPrefix(m.Subject, c.bucket.prefix), m, at.Sequence.Stream); err != nil || c.missing == 0 {
		return err
	}
	if c.missing--; c.missing > 0 && at.NumPending > 0 {
		return nil
	}
	c.missing = 0
	return c.complete()
}

// pushTo lets the server push the newest value of each key with a subject to an inbox, and then every change.
func (b *bucket) pushTo(op *operation, inbox, subject string, keysOnly bool) (*jetstream.ConsumerInfo, error) {
	var consumer jetstream.PushConsumer
	err := op.read(func(ctx context.Context) (err error) {
		consumer, err = b.engine.js.CreatePushConsumer(ctx, b.stream, jetstream.ConsumerConfig{
			DeliverSubject: inbox, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: subject,
			AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1, HeadersOnly: keysOnly,
			IdleHeartbeat: heartbeat, FlowControl: true, InactiveThreshold: forgotten,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return consumer.CachedInfo(), nil
}

// statusHeader marks a message of the server's own: a heartbeat or a request of flow control.
const (
	statusHeader  = "Status"
	stalledHeader = "Nats-Consumer-Stalled"
)

// next returns the next message, which may be a heartbeat.
func (b *bucket) next(op *operation, sub *natsgo.Subscription) (*natsgo.Msg, error) {
	ctx, cancel := context.WithTimeout(op, silence)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil && ctx.Err() != nil && op.Err() == nil {
		return nil, errMissed
	}
	return m, err
}

// flow answers a request of flow control: that what came before it was taken.
func (e *engine) flow(m *natsgo.Msg) error {
	to := m.Reply
	if to == "" {
		to = m.Header.Get(stalledHeader)
	}
	if to == "" {
		return nil
	}
	return e.conn.Publish(to, nil)
}
