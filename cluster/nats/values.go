package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// Headers of a message that is no value: somebody has deleted the key, or the server has removed
// it because it expired.
const (
	operationHeader = "KV-Operation"
	purged          = "PURGE" // DEL would make the server leave a mark of its own when this one expires
)

// A short value has a header that makes it as long as the mark of its deletion, so that a full
// bucket has room for that.
const (
	roomHeader = "Bowline-Room"
	roomBelow  = 96
)

const (
	inFlight   = 5 * time.Millisecond // between looks at a write that is on its way
	markWithin = 2 * time.Second      // how long to try to mark what was deleted
)

// Create implements cluster.Bucket.
func (b *bucket) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	ttl, err := rules.TTL(b.options, ttl)
	if err == nil {
		err = rules.Value(b.options, key, value)
	}
	if err != nil {
		return 0, err
	}
	m := b.message(key, value)
	if ttl > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, ttl.String())
	}
	revision, err := b.create(ctx, key, m)
	return revision, b.explain("create", key, err)
}

// create writes a value if the key has none. Whether it has one is not for a read to decide, as
// that may be stale: only the leader, who may accept the write, is asked.
func (b *bucket) create(ctx context.Context, key string, m *natsgo.Msg) (uint64, error) {
	for last := uint64(0); ; {
		revision, err := b.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
		if !errors.Is(err, cluster.ErrConflict) {
			return revision, err
		}
		latest, _, exists, err := b.latest(ctx, key)
		switch {
		case err != nil:
			return 0, err
		case exists:
			return 0, cluster.ErrExists
		case latest == last:
			if err := b.await(ctx); err != nil {
				return 0, err
			}
		}
		last = latest
	}
}

// await waits for a write that is on its way: the leader refuses others until it knows the outcome.
func (b *bucket) await(ctx context.Context) error {
	if err := wait.Sleep(ctx, inFlight); err != nil {
		return fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
	}
	return nil
}

// Update implements cluster.Bucket.
func (b *bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := rules.Value(b.options, key, value); err != nil {
		return 0, err
	}
	revision, err := b.replace(ctx, key, b.message(key, value), revision)
	return revision, b.explain("update", key, err)
}

// replace writes a message in place of the value with a revision.
func (b *bucket) replace(ctx context.Context, key string, m *natsgo.Msg, revision uint64) (uint64, error) {
	if revision == 0 { // for the server: the key has no value
		return 0, cluster.ErrConflict
	}
	for {
		next, err := b.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision))
		if !errors.Is(err, cluster.ErrConflict) {
			return next, err
		}
		latest, _, exists, err := b.latest(ctx, key)
		if err != nil {
			return 0, err
		}
		if !exists || latest != revision {
			return 0, cluster.ErrConflict
		}
		if err := b.await(ctx); err != nil {
			return 0, err
		}
	}
}

// Put implements cluster.Bucket.
func (b *bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := rules.Value(b.options, key, value); err != nil {
		return 0, err
	}
	revision, err := b.publish(ctx, b.message(key, value))
	return revision, b.explain("put", key, err)
}

// Delete implements cluster.Bucket.
func (b *bucket) Delete(ctx context.Context, key string, revision uint64) error {
	if err := rules.Key(key); err != nil {
		return err
	}
	_, err := b.replace(ctx, key, b.mark(key), revision)
	if errors.Is(err, cluster.ErrFull) {
		err = b.remove(ctx, key, revision)
	}
	return b.explain("delete", key, err)
}

// remove deletes a value from a full bucket, where the mark of a deletion finds room only then.
func (b *bucket) remove(ctx context.Context, key string, revision uint64) error {
	latest, _, exists, err := b.latest(ctx, key)
	if err != nil {
		return err
	}
	if !exists || latest != revision {
		return cluster.ErrConflict
	}
	err = b.do(ctx, func(op *operation) error {
		return op.write(func(ctx context.Context) error { return (*b.reads.Load()).DeleteMsg(ctx, revision) })
	})
	switch {
	case code(err) == codeNoMessage || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful):
		return cluster.ErrConflict // it was replaced in the meantime, or deleted
	case err != nil:
		return err
	}
	b.markRemoved(ctx, key)
	return nil
}

// markRemoved tells those who watch that a value was deleted. Others may take the room that it has left: then the mark comes when they leave some.
func (b *bucket) markRemoved(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, markWithin)
	defer cancel()
	for {
		_, err := b.publish(ctx, b.mark(key), jetstream.WithExpectLastSequencePerSubject(0))
		if errors.Is(err, cluster.ErrFull) && wait.Sleep(ctx, inFlight) == nil {
			continue
		}
		if err != nil && !errors.Is(err, cluster.ErrConflict) { // with one, the key has a value again
			b.engine.log.Warn("a key was deleted, and who watches may learn of it late", "bucket", b.options.Name, "key", key, "err", err)
		}
		return
	}
}

func (b *bucket) message(key string, value []byte) *natsgo.Msg {
	m := natsgo.NewMsg(b.prefix + key)
	m.Data = value
	if len(value) < roomBelow {
		m.Header.Set(roomHeader, strings.Repeat("-", roomBelow))
	}
	return m
}

// mark returns the mark of a deletion.
func (b *bucket) mark(key string) *natsgo.Msg {
	m := natsgo.NewMsg(b.prefix + key)
	m.Header.Set(operationHeader, purged)
	m.Header.Set(jetstream.MsgTTLHeader, markerTTL.String())
	return m
}

// publish sends a message to the stream, and returns its revision.
func (b *bucket) publish(ctx context.Context, m *natsgo.Msg, options ...jetstream.PublishOpt) (revision uint64, err error) {
	options = append(options, jetstream.WithRetryAttempts(0))
	err = b.do(ctx, func(op *operation) error {
		return op.write(func(ctx context.Context) error {
			b.engine.sent.Add(1)
			ack, err := b.engine.js.PublishMsg(ctx, m, options...)
			if err == nil || code(err) != 0 {
				b.engine.received.Add(1)
			}
			if err == nil {
				revision = ack.Sequence
			}
			return err
		})
	})
	return revision, err
}

// latest asks the leader for the revision and the value of a key. The revision is 0 if it never had a
// value or it was deleted long ago. Exists says whether it has a value.
func (b *bucket) latest(ctx context.Context, key string) (revision uint64, value []byte, exists bool, err error) {
	err = b.do(ctx, func(op *operation) error {
		return op.read(func(ctx context.Context) error {
			b.engine.sent.Add(1)
			body := fmt.Sprintf(`{"last_by_subj":%q}`, b.prefix+key)
			m, err := b.engine.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+b.stream, []byte(body))
			if err != nil {
				return err
			}
			b.engine.received.Add(1)
			revision, value, exists, err = decodeLatest(m.Data)
			return err
		})
	})
	return revision, value, exists, err
}

// decodeLatest decodes an answer to STREAM.MSG.GET.
func decodeLatest(answer []byte) (revision uint64, value []byte, exists bool, err error) {
	var decoded struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer, &decoded); err != nil {
		return 0, nil, false, err
	}
	m := decoded.Message
	switch {
	case decoded.Error != nil && decoded.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return 0, nil, false, nil
	case decoded.Error != nil:
		return 0, nil, false, decoded.Error
	case len(m.Header) == 0:
		return m.Sequence, m.Data, true, nil
	}
	header, err := natsgo.DecodeHeadersMsg(m.Header)
	return m.Sequence, m.Data, !deleted(header), err
}

// deleted reports whether a message with these headers is no value.
func deleted(h natsgo.Header) bool {
	return h.Get(operationHeader) != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// Get implements cluster.Bucket.
func (b *bucket) Get(ctx context.Context, key string) (cluster.Entry, error) {
	if err := rules.Key(key); err != nil {
		return cluster.Entry{}, err
	}
	var m *jetstream.RawStreamMsg
	err := b.do(ctx, func(op *operation) error {
		return op.read(func(ctx context.Context) (err error) {
			m, err = (*b.reads.Load()).GetLastMsgForSubject(ctx, b.prefix+key)
			return err
		})
	})
	switch {
	case err == nil && !deleted(m.Header):
		return cluster.Entry{Key: key, Value: m.Data, Revision: m.Sequence}, nil
	case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
		return cluster.Entry{}, b.explain("get", key, err)
	}
	if (*b.reads.Load()).CachedInfo().Config.Replicas > 1 {
		// A replica learns of a write up to a second late, and only from a leader.
		revision, value, exists, err := b.latest(ctx, key)
		if exists || err != nil {
			return cluster.Entry{Key: key, Value: value, Revision: revision}, b.explain("get", key, err)
		}
	}
	return cluster.Entry{}, b.explain("get", key, cluster.ErrNotFound)
}

// explain says what failed on what.
func (b *bucket) explain(what, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s in bucket %s: %w", what, key, b.options.Name, err)
}
