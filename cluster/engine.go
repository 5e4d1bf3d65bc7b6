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
// An Engine belongs to one cluster and one node. Subjects, buckets and keys of another
// cluster are others, also if they have the same names. A subject consists of parts of letters,
// digits, "-" and "_", which are separated by "."; it has at most 256 bytes. Messages and requests
// are apart, also if they have the same subject.
//
// A context bounds how long a method waits. If an Engine cannot be reached, methods return
// an error that matches ErrUnavailable, at the latest when ctx ends. After such an error the
// write may have happened or not. Methods of a closed Engine do so, too. What the rules below do
// not allow is refused before it is sent, with an error that matches ErrInvalid.
type Engine interface {
	// Bucket returns a bucket, and creates it if it does not exist. If it exists with other
	// settings, the error is a *SettingsError. The Engine creates it again if it has lost
	// it, empty: then revisions begin anew.
	Bucket(ctx context.Context, o BucketOptions) (Bucket, error)

	// Publish sends a message to all current subscribers of a subject. It does not block.
	// The message may be lost, or arrive twice.
	Publish(subject string, body []byte) error

	// Subscribe calls f with each message of a subject, one call at a time, in the order of
	// each publisher, but not with those that this Engine has published itself. When
	// Subscribe returns, the Engine knows of it; messages of nodes that are connected
	// elsewhere may take a moment longer to come.
	//
	// Up to 1,024 messages wait for f, the next ones are lost. Then, and whenever the
	// connection was interrupted, f is called with a Message with Missed: messages that
	// were sent before this call may be lost. A message may be lost without it on its way
	// between two servers of the Engine; who must know numbers them.
	//
	// The function stop waits for f, so f must not call it. After stop has returned, f is
	// not called. ctx bounds Subscribe only.
	Subscribe(ctx context.Context, subject string, f func(Message)) (stop func(), err error)

	// Request sends a message to everybody who answers requests to a subject, apart from
	// this Engine itself, and returns the first response. If nobody answers requests to
	// it, the error matches ErrNoResponder, and comes without delay. If none responds
	// before ctx ends, the error matches ErrUnavailable and the one of ctx.
	Request(ctx context.Context, subject string, body []byte) ([]byte, error)

	// Collect does the same, and yields all responses until ctx ends or the loop is left.
	// An error is the last that it yields.
	Collect(ctx context.Context, subject string, body []byte) iter.Seq2[[]byte, error]

	// Answer calls f with each request to a subject, on a goroutine of its own, at most 64
	// at a time; up to 1,024 more wait, and the next ones are lost. A request may arrive
	// twice. A response above MaxMessage is not sent. The function stop ends the context of
	// each f, and waits for them, so f must not call it. ctx bounds Answer only.
	Answer(ctx context.Context, subject string, f func(ctx context.Context, body []byte) []byte) (stop func(), err error)

	// Connected reports whether the Engine can be reached, as far as known. The channel is
	// closed when that changes, and when the Engine is closed.
	Connected() (bool, <-chan struct{})

	// Messages counts what the methods of this Engine and its Buckets have sent, and what
	// they have received. What only keeps a connection or a Watch alive does not count.
	Messages() (sent, received uint64)

	// LocalAddress is the address of this machine by which it reaches the Engine, without a
	// port, such as "10.0.0.7"; "127.0.0.1" if both are in one process.
	LocalAddress() string

	// Close ends the connection, all that was subscribed and answered as their stop does,
	// and everything that waits. It may be called again.
	Close() error
}

// MaxMessage is the size of the longest message, and of the longest value of a bucket, in bytes.
const MaxMessage = 256 << 10

// A Message is what Subscribe receives.
type Message struct {
	Body   []byte
	Missed bool // messages that were sent before may be lost; Body is nil
}

// BucketOptions are the settings of a bucket.
type BucketOptions struct {
	Name     string        // of lower-case letters and digits, at most 32
	TTL      time.Duration // a value expires so long after it was written last, at least a second; 0: it does not
	OwnTTL   bool          // Create accepts a TTL for the key
	MaxBytes int64         // of all values together, with what the Engine needs to keep them; 0: no limit
	MaxValue int           // of one value; 0: MaxMessage
	Memory   bool          // the values need not survive the Engine
}

// A Bucket contains values by key. Keys consist of parts of letters, digits, "-", "_" and "=",
// which are separated by "."; they have at most 256 bytes.
//
// Each write gives a value a new revision, higher than all before it in this bucket. Only
// writes are decided by the latest value. Get, Keys and Watch may show an older state: one
// in which a value exists that was replaced, deleted or has expired, or does not exist yet.
//
// A write that finds no room gets an error that matches ErrFull.
type Bucket interface {
	// Create writes a value if the key has none: it has none after Delete, and after the
	// value has expired. Otherwise the error matches ErrExists. With ttl above zero the
	// value expires after that, if the TTL of the bucket does not come first; the bucket
	// must have OwnTTL. A ttl is rounded up to a second.
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (revision uint64, err error)

	// Update replaces the value with a revision. From now on the new value has the TTL of
	// the bucket, whatever Create was given. If the key has another value by now, or none,
	// the error matches ErrConflict. The revision is one of a value, not that of an Entry
	// with Deleted.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)

	// Put writes a value, whatever the key has, with the TTL of the bucket.
	Put(ctx context.Context, key string, value []byte) (uint64, error)

	// Delete deletes the value with a revision. If the key has another value by now, or
	// none, the error matches ErrConflict. The revision is as for Update.
	Delete(ctx context.Context, key string, revision uint64) error

	// Get returns the value of a key, perhaps an older one. If there is none, the error
	// matches ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)

	// Keys yields the keys that begin with a prefix, which is empty or ends with a ".", in
	// no particular order. An error is the last that it yields.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Watch yields the present values of keys with a prefix, then one Entry with Current,
	// and then each change, in order of revision, until ctx ends, the loop is left or the
	// Engine is closed. A change that another one of the key has replaced may be left out.
	// A value that expired is yielded as Deleted, but perhaps late.
	//
	// A Watch survives interruptions of the connection, and begins when there is one. If it
	// may have missed something, it yields the present values again, those that have gone
	// as Deleted, and then Current. So a map to which each Entry is applied has what the
	// bucket has. Revisions may then be lower than before, if the Engine has lost values.
	Watch(ctx context.Context, prefix string) iter.Seq[Entry]
}

// An Entry is a value of a Bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool // the key has no value any more; Value is nil, and Revision may be 0
	Current  bool // everything that exists was yielded; the other fields are zero
}

var (
	// ErrUnavailable says that the Engine could not be reached, did not answer in time, or
	// was closed.
	ErrUnavailable = errors.New("cluster: the engine cannot be reached")

	// ErrDenied says that the Engine refuses the credentials, or that they do not permit an
	// operation. Such an error also matches ErrUnavailable.
	ErrDenied = errors.New("cluster: the engine does not permit it")

	// ErrInvalid says that a name, a size or a duration is none that the Engine accepts.
	ErrInvalid = errors.New("cluster: refused before it was sent")

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
