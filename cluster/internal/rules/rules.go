// Package rules decides what an Engine refuses before it sends it. Every implementation of
// cluster.Engine asks it, so that all refuse the same.
//
//bowline:pure
package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

var (
	clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	bucketName  = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
	subjectForm = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	keyForm     = regexp.MustCompile(`^[A-Za-z0-9_=-]+(\.[A-Za-z0-9_=-]+)*$`)
)

// maxName is the length of the longest subject and of the longest key.
const maxName = 256

// Cluster returns why a cluster must not have a name, or nil.
func Cluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("%w: the name of a cluster has 1 to 64 letters, digits, \"-\" and \"_\", and is not %.100q", cluster.ErrInvalid, name)
	}
	return nil
}

// Subject returns why a message must not have a subject, or nil.
func Subject(subject string) error {
	if len(subject) > maxName || !subjectForm.MatchString(subject) {
		return fmt.Errorf("%w: a subject has at most 256 letters, digits, \"-\" and \"_\" in parts separated by \".\", and is not %.100q", cluster.ErrInvalid, subject)
	}
	return nil
}

// Message returns why a message must not be sent, or nil.
func Message(subject string, body []byte) error {
	if err := Subject(subject); err != nil {
		return err
	}
	if len(body) > cluster.MaxMessage {
		return fmt.Errorf("%w: the message to %s has %d bytes, more than %d", cluster.ErrInvalid, subject, len(body), cluster.MaxMessage)
	}
	return nil
}

// Key returns why a value must not have a key, or nil.
func Key(key string) error {
	if len(key) > maxName || !keyForm.MatchString(key) {
		return fmt.Errorf("%w: a key has at most 256 letters, digits, \"-\", \"_\" and \"=\" in parts separated by \".\", and is not %.100q", cluster.ErrInvalid, key)
	}
	return nil
}

// Prefix returns why keys must not be listed by a prefix, or nil.
func Prefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	parts, ended := strings.CutSuffix(prefix, ".")
	if !ended {
		return fmt.Errorf("%w: a prefix of keys is empty or ends with \".\", unlike %.100q", cluster.ErrInvalid, prefix)
	}
	return Key(parts)
}

// Bucket returns the settings of a bucket with their defaults, or why a bucket must not have
// them.
func Bucket(o cluster.BucketOptions) (cluster.BucketOptions, error) {
	o.MaxValue = cmp.Or(o.MaxValue, cluster.MaxMessage)
	switch {
	case !bucketName.MatchString(o.Name):
		return o, fmt.Errorf("%w: the name of a bucket has 1 to 32 lower-case letters and digits, and is not %.100q", cluster.ErrInvalid, o.Name)
	case o.TTL != 0 && o.TTL < time.Second:
		return o, fmt.Errorf("%w: bucket %s has a TTL of %v, less than a second", cluster.ErrInvalid, o.Name, o.TTL)
	case o.MaxBytes < 0:
		return o, fmt.Errorf("%w: bucket %s has room for %d bytes", cluster.ErrInvalid, o.Name, o.MaxBytes)
	case o.MaxValue < 0 || o.MaxValue > cluster.MaxMessage:
		return o, fmt.Errorf("%w: bucket %s has values of up to %d bytes, and the most is %d", cluster.ErrInvalid, o.Name, o.MaxValue, cluster.MaxMessage)
	}
	return o, nil
}

// Value returns why a value must not be written to a bucket, or nil.
func Value(o cluster.BucketOptions, key string, value []byte) error {
	if err := Key(key); err != nil {
		return err
	}
	if len(value) > o.MaxValue {
		return fmt.Errorf("%w: the value of %s in bucket %s has %d bytes, more than %d", cluster.ErrInvalid, key, o.Name, len(value), o.MaxValue)
	}
	return nil
}

// TTL returns the TTL that Create sets for a key, in whole seconds, or why it must not.
func TTL(o cluster.BucketOptions, ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl < 0:
		return 0, fmt.Errorf("%w: a TTL of %v", cluster.ErrInvalid, ttl)
	case ttl > 0 && !o.OwnTTL:
		return 0, fmt.Errorf("%w: the keys of bucket %s have no TTL of their own", cluster.ErrInvalid, o.Name)
	}
	return (ttl + time.Second - 1).Truncate(time.Second), nil
}
