package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// A watch ends with its node, whatever its context.
func TestAWatchEndsWithItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, clustertest.New(clustertest.Options{}), "a")
		over := make(chan error, 1)
		go func() { over <- a.Values().Watch(context.Background(), func([]byte) {}) }()
		synctest.Wait()
		closeNode(t, a.Node)
		synctest.Wait()
		if len(over) != 1 || <-over != nil {
			t.Error("the watch goes on, or has failed")
		}
	})
}

// The record of shared keys is among the values, and is none of them.
func TestAWatchLeavesTheRecordOfKeysOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, clustertest.New(clustertest.Options{}), "a")
		a.Keys("asking")
		if err := a.RotateKeys(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		shown := 0
		over := make(chan error)
		go func() { over <- a.Values().Watch(ctx, func([]byte) { shown++ }) }()
		synctest.Wait()
		cancel()
		if err := <-over; err != nil || shown != 1 { // that this was all
			t.Errorf("it has shown %d values: %v", shown, err)
		}
		if refused := a.Report().RefusedRecords; refused != 0 {
			t.Errorf("%d values count as refused", refused)
		}
	})
}

// A value is replaced only by who has seen it last, is shown to all nodes, and cannot be read without the key of the cluster.
//
// Guarantees: G-0081.6
func TestValuesOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		a, b := nodes[0].Values(), nodes[1].Values()
		if value, revision, err := a.Load(t.Context(), "k"); value != nil || revision != 0 || err != nil {
			t.Fatalf("at first: %q, %d, %v", value, revision, err)
		}
		save := func(by *cluster.Values, value string, revision uint64, want bool) {
			t.Helper()
			if saved, err := by.Save(t.Context(), "k", []byte(value), revision); saved != want || err != nil {
				t.Errorf("%s over %d: %t, %v", value, revision, saved, err)
			}
		}
		save(a, "one", 0, true)
		save(b, "the second value", 0, false)
		value, revision, err := b.Load(t.Context(), "k")
		if string(value) != "one" || err != nil {
			t.Fatalf("loaded %q, %v", value, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		seen, over := make(chan string, 10), make(chan error)
		go func() { over <- nodes[2].Values().Watch(ctx, func(value []byte) { seen <- string(value) }) }()
		save(b, "the second value", revision, true)
		save(a, "three", revision, false)
		synctest.Wait()
		cancel()
		if err := <-over; err != nil {
			t.Errorf("the watch: %v", err)
		}
		close(seen)
		var all []string
		for one := range seen {
			all = append(all, one)
		}
		if len(all) < 2 || all[len(all)-1] != "the second value" && all[len(all)-2] != "the second value" {
			t.Errorf("the watch has shown %q", all)
		}
		if _, err := a.Save(t.Context(), "k", bytes.Repeat([]byte{0}, cluster.MaxValue+2000), 0); !errors.Is(err, cluster.ErrInvalid) {
			t.Errorf("one that is too long: %v", err)
		}
		if _, err := a.Save(t.Context(), "long", bytes.Repeat([]byte{0}, cluster.MaxValue), 0); err != nil {
			t.Errorf("the longest one: %v", err)
		}
		bucket, err := engines[0].Bucket(t.Context(), cluster.BucketOptions{Name: "shared", MaxBytes: 256 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for key, err := range bucket.Keys(t.Context(), "") {
			found, getErr := bucket.Get(t.Context(), key)
			if err != nil || getErr != nil || key == "k" || bytes.Contains(found.Value, []byte("the second value")) {
				t.Errorf("%s has %q: %v, %v", key, found.Value, err, getErr)
			}
		}
		engines[0].Cut()
		if _, _, err := a.Load(t.Context(), "k"); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("while the engine is away: %v", err)
		}
		engines[0].Heal()
	})
}
