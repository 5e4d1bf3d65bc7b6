package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	// markerTTL is how long the server keeps the mark that a key was deleted or has expired.
	// Whoever watches has to learn of it in that time.
	markerTTL = 10 * time.Minute

	// Metadata of a stream: its keys may have a TTL of their own; its values need not survive.
	ownTTL   = "bowline_own_ttl"
	inMemory = "bowline_memory"

	retryEvery = 100 * time.Millisecond // what failed for want of a leader
)

// A bucket implements cluster.Bucket. It is a stream as NATS makes for its key-value buckets, but
// values can be removed from it while it is full.
type bucket struct {
	engine  *engine
	options cluster.BucketOptions
	name    string // on the server
	stream  string
	prefix  string // of the subjects of keys
	reads   atomic.Pointer[jetstream.Stream]
}

// Bucket implements cluster.Engine.
func (e *engine) Bucket(ctx context.Context, o cluster.BucketOptions) (cluster.Bucket, error) {
	o, err := rules.Bucket(o)
	if err != nil {
		return nil, err
	}
	name := "bl_" + e.options.Cluster + "_" + o.Name
	b := &bucket{engine: e, options: o, name: name, stream: "KV_" + name, prefix: "$KV." + name + "."}
	if err := b.open(ctx); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", o.Name, err)
	}
	return b, nil
}

// open creates the stream if it does not exist, and checks its settings otherwise.
func (b *bucket) open(ctx context.Context) error {
	for {
		err := b.engine.try(ctx, b.openOnce, b.on()...)
		if !again(err) {
			return err
		}
		if paused := wait.Sleep(ctx, retryEvery); paused != nil {
			return fmt.Errorf("%w: %w; %w", cluster.ErrUnavailable, paused, err)
		}
	}
}

// find returns the stream of the bucket, which it creates if it may.
func (b *bucket) find(op *operation) (stream jetstream.Stream, err error) {
	err = op.read(func(ctx context.Context) (err error) {
		stream, err = b.engine.js.Stream(ctx, b.stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) && b.engine.options.Existing {
			return fmt.Errorf("%w: the bucket does not exist", cluster.ErrNotFound)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			stream, err = b.engine.js.CreateStream(ctx, b.config(b.replicas()))
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was faster, with other settings
			stream, err = b.engine.js.Stream(ctx, b.stream)
		}
		return err
	})
	return stream, err
}

func (b *bucket) openOnce(op *operation) error {
	stream, err := b.find(op)
	if code(err) == codeNotClustered {
		return &ServerError{Server: b.engine.conn.ConnectedUrlRedacted(), Reason: "belongs to no cluster of servers, so that buckets cannot have replicas"}
	}
	if err != nil {
		return err
	}
	if err := b.compare(stream.CachedInfo().Config); err != nil {
		return err
	}
	b.reads.CompareAndSwap(nil, &stream)
	return nil
}

// replicas returns how many servers shall keep the bucket.
func (b *bucket) replicas() int {
	if b.engine.options.Replicas == 0 && b.engine.conn.ConnectedClusterName() != "" {
		return 3
	}
	return cmp.Or(b.engine.options.Replicas, 1)
}

func (b *bucket) config(replicas int) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: b.stream, Description: "bowline", Subjects: []string{b.prefix + ">"},
		MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxConsumers: -1, MaxBytes: cmp.Or(b.options.MaxBytes, -1),
		MaxMsgSize: int32(b.options.MaxValue + room), //nolint:gosec // at most MaxMessage
		MaxAge:     b.options.TTL, Duplicates: min(cmp.Or(b.options.TTL, 2*time.Minute), 2*time.Minute),
		Discard: jetstream.DiscardNew, AllowRollup: true, AllowDirect: true, AllowMsgTTL: true,
		Replicas: replicas, Metadata: map[string]string{},
	}
	if b.options.Memory {
		c.Metadata[inMemory] = "true"
		if replicas <= 1 {
			// Replicas that are empty elect no leader without all others, so replicas in memory would
			// need every server after all have ended, and not more than half of them.
			c.Storage = jetstream.MemoryStorage
		}
	}
	if b.options.TTL > 0 || b.options.OwnTTL {
		c.SubjectDeleteMarkerTTL = markerTTL
	}
	if b.options.OwnTTL {
		c.Metadata[ownTTL] = "true"
	}
	return c
}

// compare returns a *cluster.SettingsError if the stream has other settings.
func (b *bucket) compare(has jetstream.StreamConfig) error {
	want := b.config(cmp.Or(b.engine.options.Replicas, has.Replicas))
	var differ []string
	for _, setting := range []struct {
		name      string
		has, want any
	}{
		{"max_age", has.MaxAge, want.MaxAge},
		{"max_bytes", has.MaxBytes, want.MaxBytes},
		{"max_msg_size", has.MaxMsgSize, want.MaxMsgSize},
		{"max_msgs_per_subject", has.MaxMsgsPerSubject, want.MaxMsgsPerSubject},
		{"storage", has.Storage, want.Storage},
		{"discard", has.Discard, want.Discard},
		{"num_replicas", has.Replicas, want.Replicas},
		{"allow_direct", has.AllowDirect, want.AllowDirect},
		{"allow_msg_ttl", has.AllowMsgTTL, want.AllowMsgTTL},
		{"subject_delete_marker_ttl", has.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL},
		{"deny_delete", has.DenyDelete, want.DenyDelete},
		{"metadata " + inMemory, has.Metadata[inMemory], want.Metadata[inMemory]},
		{"metadata " + ownTTL, has.Metadata[ownTTL], want.Metadata[ownTTL]},
	} {
		if setting.has != setting.want {
			differ = append(differ, fmt.Sprintf("%s is %v, and not %v", setting.name, setting.has, setting.want))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return &cluster.SettingsError{Bucket: b.options.Name, Detail: strings.Join(differ, ", ") + "; edit or delete the stream " + b.stream}
}

// on returns the texts by which an error about the bucket is recognized: its name is a part of all subjects.
func (b *bucket) on() []string { return []string{b.name + ".", b.name + `"`} }

// do calls an operation until it succeeds, fails for good, or ctx ends. The server may lack a
// leader for a while; and the stream may be lost, which is then created again.
func (b *bucket) do(ctx context.Context, operation func(*operation) error) error {
	for {
		err := b.engine.try(ctx, operation, b.on()...)
		if !again(err) {
			return err
		}
		if lost(err) {
			if err := b.open(ctx); err != nil {
				return err
			}
		}
		if paused := wait.Sleep(ctx, retryEvery); paused != nil {
			return fmt.Errorf("%w: %w; %w", cluster.ErrUnavailable, paused, err)
		}
	}
}

// try calls an operation once.
func (e *engine) try(ctx context.Context, do func(*operation) error, on ...string) error {
	op, err := e.begin(ctx, on...)
	if err != nil {
		return err
	}
	defer op.end()
	return op.explain(do(op))
}

// A server that loses its leader may also lose what it was asked. The answer to a read is awaited
// for a shorter time, because it is asked for again; what became of a write is then unknown.
const (
	readWithin  = 2 * time.Second
	writeWithin = 5 * time.Second
)

var (
	errNoAnswer = errors.New("no answer")
	errUnknown  = errors.New("no answer, so that nobody knows whether it was written")
)

// read does what may be done again.
func (op *operation) read(do func(context.Context) error) error {
	return op.limit(readWithin, errNoAnswer, do)
}

// write does what may be done once.
func (op *operation) write(do func(context.Context) error) error {
	return op.limit(writeWithin, errUnknown, do)
}

func (op *operation) limit(d time.Duration, late error, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(op, d)
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil && op.Err() == nil {
		return late
	}
	return err
}

// again reports whether an operation had no effect, and may succeed soon.
func again(err error) bool {
	if errors.Is(err, errNoAnswer) {
		return true
	}
	switch code(err) {
	case codeNoPeers, codeNotAvailable, codeNotLeader, codeOffline, codeNotReady:
		return true
	}
	return lost(err)
}

// lost reports whether nobody answers for a stream: it has no leader, or does not exist.
func lost(err error) bool {
	return errors.Is(err, natsgo.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound)
}
