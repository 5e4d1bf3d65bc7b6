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
	for what, err := range map[string]error{
		"a long message":            Message("s", make([]byte, cluster.MaxMessage+1)),
		"a long value":              Value(bucket, "k", make([]byte, 11)),
		"a negative TTL":            second(bucket, -1),
		"a TTL of a key":            second(cluster.BucketOptions{Name: "c"}, 1),
		"a short TTL":               settings(cluster.BucketOptions{TTL: time.Second - 1}),
		"a negative TTL of all":     settings(cluster.BucketOptions{TTL: -time.Hour}),
		"room for less than naught": settings(cluster.BucketOptions{MaxBytes: -1}),
		"values above the most":     settings(cluster.BucketOptions{MaxValue: cluster.MaxMessage + 1}),
		"values below naught":       settings(cluster.BucketOptions{MaxValue: -1}),
	} {
		if !errors.Is(err, cluster.ErrInvalid) {
			t.Errorf("%s got %v, want ErrInvalid", what, err)
		}
	}
	for what, err := range map[string]error{
		"the longest message": Message("s", make([]byte, cluster.MaxMessage)),
		"the longest value":   Value(bucket, "k", make([]byte, 10)),
		"the shortest TTL":    settings(cluster.BucketOptions{TTL: time.Second}),
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
