package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 256)
	for _, name := range []struct {
		kind          string
		check         func(string) error
		valid, others []string
	}{
		{"cluster", Cluster, []string{"a", "A-b_9", long[:64]}, []string{"", "a.b", "a b", long[:65], "é", "a\n"}},
		{"subject", Subject, []string{"ev", "ctl.node-1_X", long}, []string{"", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a=", long + "a", "é", "a\n"}},
		{"key", Key, []string{"k", "o.a_b-c=.X", long}, []string{"", ".", "a.", ".a", "a..b", "*", "a.>", "a/b", long + "a", "a\n"}},
		{"prefix", Prefix, []string{"", "a.", "a.b."}, []string{"a", ".", "a..", "*.", long + "a."}},
		{"bucket", func(name string) error {
			_, err := Bucket(cluster.BucketOptions{Name: name})
			return err
		}, []string{"lease", "a1", long[:32]}, []string{"", "Lease", "a_b", "a-b", "a.b", long[:33], "a\n"}},
	} {
		for _, valid := range name.valid {
			if err := name.check(valid); err != nil {
				t.Errorf("%s %q got %v", name.kind, valid, err)
			}
		}
		for _, other := range name.others {
			if err := name.check(other); !errors.Is(err, cluster.ErrInvalid) {
				t.Errorf("%s %q got %v, want ErrInvalid", name.kind, other, err)
			}
		}
	}
}

func TestSizesAndDurations(t *testing.T) {
	bucket, err := Bucket(cluster.BucketOptions{Name: "b", MaxValue: 10, OwnTTL: true})
	if err != nil {
		t.Fatal(err)
	}
	second := func(o cluster.BucketOptions, ttl time.Duration) error { _, err := TTL(o, ttl); return err }
	settings := func(o cluster.BucketOptions) error { o.Name = "b"; _, err := Bucket(o); return err }
	long := make([]byte, cluster.MaxMessage+1)
	for want, err := range map[string]error{
		"the message to s.t has 262145 bytes, more than 262144":                                               Message("s.t", long),
		`a subject has at most 256 letters, digits, "-" and "_" in parts separated by ".", and is not "s t"`:  Message("s t", nil),
		"the value of k in bucket b has 11 bytes, more than 10":                                               Value(bucket, "k", make([]byte, 11)),
		`a key has at most 256 letters, digits, "-", "_" and "=" in parts separated by ".", and is not "k/l"`: Value(bucket, "k/l", nil),
		"a TTL of -1ns": second(bucket, -1),
		"the keys of bucket c have no TTL of their own":                                    second(cluster.BucketOptions{Name: "c"}, 1),
		"the keys of bucket d have no TTL of their own":                                    second(cluster.BucketOptions{Name: "d", TTL: time.Hour}, time.Second),
		"bucket b has a TTL of 999.999999ms, less than a second":                           settings(cluster.BucketOptions{TTL: time.Second - 1}),
		"bucket b has a TTL of -1h0m0s, less than a second":                                settings(cluster.BucketOptions{TTL: -time.Hour}),
		"bucket b has room for -1 bytes":                                                   settings(cluster.BucketOptions{MaxBytes: -1}),
		"bucket b has values of up to 262145 bytes, and the most is 262144":                settings(cluster.BucketOptions{MaxValue: cluster.MaxMessage + 1}),
		"bucket b has values of up to -1 bytes, and the most is 262144":                    settings(cluster.BucketOptions{MaxValue: -1}),
		`the name of a cluster has 1 to 64 letters, digits, "-" and "_", and is not "a b"`: Cluster("a b"),
		`a prefix of keys is empty or ends with ".", unlike "a.b"`:                         Prefix("a.b"),
		`the name of a bucket has 1 to 32 lower-case letters and digits, and is not "A"`:   func() error { _, err := Bucket(cluster.BucketOptions{Name: "A"}); return err }(),
	} {
		if !errors.Is(err, cluster.ErrInvalid) || err.Error() != cluster.ErrInvalid.Error()+": "+want {
			t.Errorf("got %v, want ErrInvalid: %s", err, want)
		}
	}
	for what, err := range map[string]error{
		"the longest message":          Message("s", long[1:]),
		"the longest value":            Value(bucket, "k", make([]byte, 10)),
		"the shortest TTL":             settings(cluster.BucketOptions{TTL: time.Second}),
		"the longest values of a kind": settings(cluster.BucketOptions{MaxValue: cluster.MaxMessage, OwnTTL: true}),
	} {
		if err != nil {
			t.Errorf("%s got %v", what, err)
		}
	}
	for ttl, want := range map[time.Duration]time.Duration{0: 0, 1: time.Second, time.Second: time.Second, time.Second + 1: 2 * time.Second} {
		if got, err := TTL(bucket, ttl); got != want || err != nil {
			t.Errorf("TTL(%v) = %v, %v, want %v", ttl, got, err, want)
		}
	}
	if plain, err := Bucket(cluster.BucketOptions{Name: "b"}); plain.MaxValue != cluster.MaxMessage || err != nil {
		t.Errorf("a value has at most %d bytes by default (%v), want %d", plain.MaxValue, err, cluster.MaxMessage)
	}
}
