package cluster

import (
	"context"
	"errors"
	"strings"
)

const (
	valueBucket = "shared"
	sealValue   = "shared value"

	// maxValueBytes is the size of all values together.
	maxValueBytes = 256 << 20
)

// MaxValue is the size of the longest value of Values, in bytes.
const MaxValue = MaxMessage - 1<<10

// Values returns a small store of values by key that all nodes share, for what they have to agree about. Values are sealed, and keys are hashed: the Engine learns neither.
func (n *Node) Values() *Values {
	return &Values{n, n.lateBucket(BucketOptions{Name: valueBucket, MaxBytes: maxValueBytes})}
}

// Values are values by key; see Node.Values. Their methods may be called from any goroutine. An error that matches ErrUnavailable says that the Engine could not be reached.
type Values struct {
	node   *Node
	bucket *lateBucket
}

// Load returns the value of a key and its revision; none and 0 if there is none. It may be an older one: only Save decides.
func (v *Values) Load(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	bucket, err := v.bucket.open(ctx)
	if err != nil {
		return nil, 0, err
	}
	found, err := bucket.Get(ctx, v.node.hashed(key))
	if errors.Is(err, ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	value, err = v.node.open(sealValue, valueBucket+"/"+found.Key, found.Value)
	return value, found.Revision, err
}

// Save replaces the value with a revision, or creates it with revision 0. It reports false if the key has another value by now. After an error it may have been saved or not.
func (v *Values) Save(ctx context.Context, key string, value []byte, revision uint64) (saved bool, err error) {
	bucket, err := v.bucket.open(ctx)
	if err != nil {
		return false, err
	}
	key = v.node.hashed(key)
	sealed := v.node.seal(sealValue, valueBucket+"/"+key, value)
	if revision == 0 {
		_, err = bucket.Create(ctx, key, sealed, 0)
	} else {
		_, err = bucket.Update(ctx, key, sealed, revision)
	}
	if errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// Watch calls f with each value that there is, then with nil, and then with each value that is saved, until ctx ends or the Node is closed; it runs on the goroutine of its caller. When it may have missed something, it begins again.
// A value that does not open is left out, and counted in the Report. An error says that it could not begin.
func (v *Values) Watch(ctx context.Context, f func(value []byte)) error {
	bucket, err := v.bucket.open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.node.ctx, cancel)()
	for entry := range bucket.Watch(ctx, "") {
		switch {
		case entry.Current:
			f(nil)
		case entry.Deleted, strings.HasPrefix(entry.Key, keysPrefix): // the latter is not one of them
		default:
			if value, err := v.node.open(sealValue, valueBucket+"/"+entry.Key, entry.Value); err == nil {
				f(value)
			}
		}
	}
	return nil
}
