package cluster_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/cluster"
)

func wantSealed(t *testing.T, value []byte, not ...string) {
	t.Helper()
	if len(value) == 0 {
		t.Error("there is no value")
	}
	for _, text := range not {
		if bytes.Contains(value, []byte(text)) {
			t.Errorf("%q can be read in %q", text, value)
		}
	}
}

// TestSealedValuesCannotBeMoved checks that a value opens with its own key, cluster, purpose and
// name alone, and that everything else is counted.
//
// Guarantees: G-0076.10
func TestSealedValuesCannotBeMoved(t *testing.T) {
	n, same := cluster.Alone(options("a")), cluster.Alone(options("b"))
	o := options("a")
	o.Cluster = "other"
	otherCluster := cluster.Alone(o)
	o = options("a")
	o.Key = bytes.Repeat([]byte{8}, cluster.KeySize)
	otherKey := cluster.Alone(o)

	sealed := n.Seal("session", "session/k1", []byte("plain"))
	wantSealed(t, sealed, "plain", "session", "k1")
	if plain, err := same.Open("session", "session/k1", sealed); err != nil || string(plain) != "plain" {
		t.Errorf("another node of the cluster: %q, %v", plain, err)
	}
	if again := n.Seal("session", "session/k1", []byte("plain")); bytes.Equal(again, sealed) {
		t.Error("two sealed values are equal")
	}
	changed := slices.Clone(sealed)
	changed[len(changed)-1] ^= 1
	version := slices.Clone(sealed)
	version[0]++
	for name, open := range map[string]func() ([]byte, error){
		"another key in the bucket": func() ([]byte, error) { return n.Open("session", "session/k2", sealed) },
		"another purpose":           func() ([]byte, error) { return n.Open("task", "session/k1", sealed) },
		"another cluster":           func() ([]byte, error) { return otherCluster.Open("session", "session/k1", sealed) },
		"another secret":            func() ([]byte, error) { return otherKey.Open("session", "session/k1", sealed) },
		"changed":                   func() ([]byte, error) { return n.Open("session", "session/k1", changed) },
		"another version":           func() ([]byte, error) { return n.Open("session", "session/k1", version) },
		"cut off":                   func() ([]byte, error) { return n.Open("session", "session/k1", sealed[:len(sealed)-1]) },
		"version alone":             func() ([]byte, error) { return n.Open("session", "session/k1", sealed[:1]) },
		"empty":                     func() ([]byte, error) { return n.Open("session", "session/k1", nil) },
	} {
		if plain, err := open(); err == nil || plain != nil {
			t.Errorf("%s: opens as %q", name, plain)
		}
	}
	if c := n.Refused(); c != 7 {
		t.Errorf("%d values were refused, want 7", c)
	}
}

// FuzzOpen opens any bytes. The seeds may be those of another process, which has other nonces.
func FuzzOpen(f *testing.F) {
	n := cluster.Alone(options("a"))
	sealed := n.Seal("session", "session/k1", []byte("plain"))
	for _, seed := range [][]byte{nil, {1}, sealed, sealed[:20], append(sealed, 0)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		plain, err := n.Open("session", "session/k1", value)
		opened := err == nil && string(plain) == "plain" && len(value) == len(sealed)
		if !opened && (err == nil || plain != nil || bytes.Equal(value, sealed)) {
			t.Errorf("%q, %v", plain, err)
		}
	})
}
