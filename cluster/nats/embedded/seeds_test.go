package embedded

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// freeAddresses returns addresses that nobody uses.
func freeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// testKey is the key of the clusters of tests.
var testKey = bytes.Repeat([]byte{7}, cluster.KeySize)

// A trio is three servers of one cluster, in this process.
type trio struct {
	t       *testing.T
	options [3]Options
	logs    [3]*lockedBuffer
	engines [3]cluster.Engine
}

func newTrio(t *testing.T) *trio {
	three := &trio{t: t}
	seeds := freeAddresses(t, 3)
	for n := range 3 {
		three.logs[n] = &lockedBuffer{}
		o := testOptions(t)
		o.Seeds, o.Listen, o.Key, o.Log = seeds, seeds[n], testKey, slog.New(slog.NewTextHandler(three.logs[n], nil))
		three.options[n] = o
	}
	t.Cleanup(func() {
		for n := range 3 {
			three.leave(n)
		}
	})
	return three
}

// join joins some of the three at once.
func (three *trio) join(all ...int) {
	three.t.Helper()
	var group sync.WaitGroup
	for _, n := range all {
		group.Go(func() {
			e, err := Join(within(three.t), three.options[n])
			if err != nil {
				three.t.Errorf("server %d: %v\n%s", n, err, three.logs[n].String())
				return
			}
			three.engines[n] = e
		})
	}
	group.Wait()
	if three.t.Failed() {
		three.t.FailNow()
	}
}

func (three *trio) leave(n int) {
	three.t.Helper()
	if three.engines[n] != nil {
		closeEngine(three.t, three.engines[n])
		three.engines[n] = nil
	}
}

// awaitLog waits until a server has said something.
func (three *trio) awaitLog(n int, text string) {
	three.t.Helper()
	for ctx := within(three.t); !strings.Contains(three.logs[n].String(), text); {
		wait(ctx, three.t, 20*time.Millisecond)
	}
}

func (three *trio) bucket(n int) cluster.Bucket {
	three.t.Helper()
	return must[cluster.Bucket](three.t)(three.engines[n].Bucket(within(three.t), cluster.BucketOptions{Name: "b"}))
}

// A server without the key of the cluster becomes none of its servers, and does them no harm.
//
// Guarantees: G-0078.7
func TestServersProveThatTheyHaveTheKey(t *testing.T) {
	t.Parallel()
	three := newTrio(t)
	three.join(0, 1, 2)
	must[uint64](t)(three.bucket(0).Create(within(t), "k", []byte("value"), 0))
	three.leave(2)
	impostor := three.options[2]
	impostor.Folder, impostor.Key, impostor.Log = t.TempDir(), bytes.Repeat([]byte{8}, cluster.KeySize), slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if e, err := Join(ctx, impostor); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("with another key Join got %v, want ErrUnavailable", err)
		if err == nil {
			closeEngine(t, e)
		}
	}
	three.awaitLog(0, "TLS route handshake error")
	must[uint64](t)(three.bucket(1).Put(within(t), "k", []byte("later")))
	three.join(2)
	wantGet(t, three.bucket(2), "k", "later")
}

// Who connects to the address for servers without TLS, or with a certificate that the key of the
// cluster has not issued, is told nothing.
//
// Guarantees: G-0078.7
func TestStrangersAreToldNothing(t *testing.T) {
	t.Parallel()
	o := newTrio(t).options[0]
	s := must[*Server](t)(Start(o))
	defer s.Close()
	stranger := must[*tls.Config](t)(Options{Cluster: "test", Key: bytes.Repeat([]byte{8}, cluster.KeySize)}.routeTLS())
	stranger.InsecureSkipVerify = true
	other := must[*tls.Config](t)(Options{Cluster: "other", Key: testKey}.routeTLS())
	other.InsecureSkipVerify = true
	plain := func(c net.Conn) net.Conn { return c }
	secure := func(config *tls.Config) func(c net.Conn) net.Conn {
		return func(c net.Conn) net.Conn { return tls.Client(c, config) }
	}
	for what, wrap := range map[string]func(net.Conn) net.Conn{
		"no TLS": plain, "no certificate": secure(&tls.Config{InsecureSkipVerify: true}), //nolint:gosec // as a stranger would
		"another key": secure(stranger), "another cluster": secure(other),
	} {
		raw := must[net.Conn](t)(net.Dial("tcp", o.Listen))
		raw.SetDeadline(time.Now().Add(limit))
		c := wrap(raw)
		io.WriteString(c, "INFO {}\r\nPING\r\n")
		if said, _ := io.ReadAll(c); len(said) > 0 && !isAlert(said) {
			t.Errorf("with %s the server has said %q", what, said)
		}
		c.Close()
	}
	friend := must[*tls.Config](t)(o.routeTLS())
	c := must[*tls.Conn](t)(tls.Dial("tcp", o.Listen, friend))
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	said := make([]byte, 5)
	if _, err := io.ReadFull(c, said); err != nil || string(said) != "INFO " {
		t.Errorf("with the key the server has said %q: %v", said, err)
	}
}

// isAlert reports whether it is an alert of TLS, without encryption.
func isAlert(said []byte) bool { return len(said) == 7 && said[0] == 21 }

// A server says what it waits for. Once the cluster has existed, two of three servers are enough.
//
// Guarantees: G-0078.9
func TestServersWaitForAMajority(t *testing.T) {
	t.Parallel()
	three := newTrio(t)
	seeds := three.options[0].Seeds
	var first sync.WaitGroup
	first.Go(func() { three.join(0) })
	three.awaitLog(0, "waiting for 1 more of 3 nodes: "+seeds[1]+", "+seeds[2]+`"`)
	three.join(1)
	first.Wait()
	created := make(chan error, 1)
	go func() {
		_, err := three.engines[1].Bucket(within(t), cluster.BucketOptions{Name: "b"})
		created <- err
	}()
	three.awaitLog(1, "waiting for 1 more of 3 nodes: "+seeds[2]+" (a cluster that is new")
	three.join(2)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	three.awaitLog(1, "3 of 3 nodes are there")
	must[uint64](t)(three.bucket(2).Create(within(t), "k", []byte("value"), 0))
	buckets(t, three.engines[0])
	for n := range 3 {
		three.leave(n)
	}
	three.join(0, 2)
	wantGet(t, three.bucket(0), "k", "value")
	must[uint64](t)(three.bucket(2).Put(within(t), "k", []byte("later")))
	_, inMemory := buckets(t, three.engines[0])
	must[uint64](t)(inMemory.Create(within(t), "k", []byte("value"), 0))
	three.join(1)
	wantGet(t, three.bucket(1), "k", "later")
}
