package cluster

import (
	"context"
	"errors"
	"iter"
	"time"
)

// An Engine is what the nodes of a cluster share: buckets of values that are replaced by
// compare-and-set, and messages. Package cluster/nats has one on NATS. An Engine need not
// be trusted with what it stores: a Node seals it. Implementations must be safe for concurrent
// use; clustertest.EngineContract checks one.
//
// A context bounds how long a method waits. If an Engine cannot be reached, methods return
// an error that matches ErrUnavailable, at the latest when ctx ends. After such an error the
// write may have happened or not.
type Engine interface {
	// Bucket returns a bucket, and creates it if it does not exist. If it exists with other
	// settings, the error is a *SettingsError.
	Bucket(ctx context.Context, o BucketOptions) (Bucket, error)

	// Publish sends a message to all current subscribers of a subject. It does not block.
	// The message may be lost.
	Publish(subject string, body []byte) error

	// Subscribe calls f with each message of a subject, one call at a time, in the order of
	// each publisher, but not with those that this Engine has published itself. If messages
	// may have been lost, also because f was too slow or the connection broke, f is called
	// with a Message with Missed. After stop has returned, f is not called.
	Subscribe(ctx context.Context, subject string, f func(Message)) (stop func(), err error)

	// Request sends a message to the one that answers requests to a subject, and returns
	// its response. If nobody does, the error matches ErrNoResponder, without delay.
	Request(ctx context.Context, subject string, body []byte) ([]byte, error)

	// Collect sends a message to everybody who answers requests to a subject, and yields
	// the responses until ctx ends or the loop is left.
	Collect(ctx context.Context, subject string, body []byte) iter.Seq2[[]byte, error]

	// Answer calls f with each request to a subject, on a goroutine of its own, at most 64
	// at a time; more wait, and beyond 1,024 are dropped. After stop has returned, no f runs.
	Answer(ctx context.Context, subject string, f func(ctx context.Context, body []byte) []byte) (stop func(), err error)

	// Connected reports whether the Engine can be reached, as far as known. The channel is
	// closed when that changes.
	Connected() (bool, <-chan struct{})

	// Messages counts everything that was sent to and received from the Engine, apart from
	// what keeps the connection alive.
	Messages() (sent, received uint64)

	// LocalAddress is the address of this machine by which it reaches the Engine, without a
	// port, such as "10.0.0.7"; "127.0.0.1" if both are on one machine.
	LocalAddress() string

	// Close ends the connection. Everything waiting returns.
	Close() error
}

// MaxMessage is the size of the longest message, and of the longest value of a bucket, in bytes.
const MaxMessage = 256 << 10

// A Message is what Subscribe receives.
type Message struct {
	Body   []byte
	Missed bool // messages may have been lost before this point; Body is nil
}

// BucketOptions are the settings of a bucket.
type BucketOptions struct {
	Name     string        // of letters, digits and underscores
	TTL      time.Duration // a value expires so long after it was written last; 0: it does not
	OwnTTL   bool          // Create accepts a TTL for the key
	MaxBytes int64         // of all values together; 0: no limit
	MaxValue int           // of one value; 0: MaxMessage
	History  int           // how many values of a key are kept; 0 means 1
	Memory   bool          // the values need not survive the Engine
}

// A Bucket contains values by key. Keys consist of letters, digits, "-", "_", "=" and ".",
// which separates their parts; they have at most 256 bytes.
//
// Each write gives a value a new revision, higher than all before it in this bucket. Only
// writes are decided by the latest value. Get, Keys and Watch may show an older state.
type Bucket interface {
	// Create writes a value if the key has none: it has none after Delete, and after the
	// value has expired. Otherwise the error matches ErrExists. With ttl above zero the
	// value expires after that, in a bucket with OwnTTL.
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (revision uint64, err error)

	// Update replaces the value with a revision, and renews its TTL. If the key has another
	// value by now, or none, the error matches ErrConflict.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)

	// Put writes a value, whatever the key has.
	Put(ctx context.Context, key string, value []byte) (uint64, error)

	// Delete deletes the value with a revision. If the key has another value by now, the
	// error matches ErrConflict.
	Delete(ctx context.Context, key string, revision uint64) error

	// Get returns the value of a key, perhaps an older one. If there is none, the error
	// matches ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)

	// Keys yields the keys that begin with a prefix, which is empty or ends with a ".", in
	// no particular order.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Watch yields the present values of keys with a prefix, then one Entry with Current,
	// and then each change, in order of revision, until ctx ends or the loop is left. A
	// change that another one has replaced may be left out. A value that expired is yielded
	// as Deleted, but perhaps late. If the Watch may have missed something, it yields
	// everything again up to the next Current. It survives interruptions of the connection.
	Watch(ctx context.Context, prefix string) iter.Seq[Entry]
}

// An Entry is a value of a Bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool // the key has no value any more
	Current  bool // everything that existed was yielded; the other fields are zero
}

var (
	// ErrUnavailable says that the Engine could not be reached, or did not answer in time.
	ErrUnavailable = errors.New("cluster: the engine cannot be reached")

	// ErrNoResponder says that nobody answers requests to a subject.
	ErrNoResponder = errors.New("cluster: nobody answers")

	// ErrExists is returned by Create.
	ErrExists = errors.New("cluster: the key has a value")

	// ErrConflict is returned by Update and Delete.
	ErrConflict = errors.New("cluster: the key has another value")

	// ErrNotFound is returned by Get.
	ErrNotFound = errors.New("cluster: the key has no value")

	// ErrFull says that the bucket, or the storage below it, has no room for a value.
	ErrFull = errors.New("cluster: there is no room for the value")
)

// A SettingsError says that a bucket exists with other settings.
type SettingsError struct {
	Bucket string
	Detail string // which settings, and their values
}

func (e *SettingsError) Error() string {
	return "cluster: bucket " + e.Bucket + " has other settings: " + e.Detail
}
