package proptest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A counting transport counts what its links send. This is all that a wrapper needs.
type counting struct {
	transport.Transport
	sent atomic.Int64
}

func (c *counting) Unwrap() transport.Transport { return c.Transport }

func (c *counting) Open(ctx context.Context) (transport.Link, error) {
	link, err := c.Transport.Open(ctx)
	return &countingLink{link, c}, err
}

type countingLink struct {
	transport.Link
	of *counting
}

func (l *countingLink) Unwrap() transport.Link { return l.Link }

func (l *countingLink) Send(o transport.Outbound) error {
	l.of.sent.Add(1)
	return l.Link.Send(o)
}

// A session over a wrapper is as fast as one without: a call needs no more goroutines, and an
// idle Conn has none.
//
// Guarantees: G-0014.26
func TestWrappersKeepSpeedAndParking(t *testing.T) {
	measure := func(t *testing.T, wrap func(transport.Transport) transport.Transport) (calling, idle int) {
		synctest.Test(t, func(t *testing.T) {
			before := goroutines()
			serve := answering(func() { calling = goroutines() - before })
			served := make(chan error, 1)
			to := wrap(inmem.New(func(link transport.Link) {
				if err := conn.Accept(link, conn.Options{Handler: serve}).Start(t.Context(), func(err error) { served <- err }); err != nil {
					t.Error(err)
				}
			}, inmem.Options{}))
			c := conn.New(to, conn.Options{})
			ended := make(chan error, 1)
			c.Control().LeaveOpening()
			if err := c.Start(t.Context(), func(err error) { ended <- err }); err != nil {
				t.Fatal(err)
			}
			c.Control().Open()
			if got, err := c.Call(t.Context(), conn.Request{Method: "m"}); err != nil || string(got) != "7" {
				t.Fatalf("got %s, %v", got, err)
			}
			quiet := time.NewTimer(time.Second)
			<-quiet.C
			synctest.Wait()
			idle = goroutines() - before
			c.Stop()
			<-ended
			<-served
		})
		return calling, idle
	}
	bare, parked := measure(t, func(inner transport.Transport) transport.Transport { return inner })
	wrapper := new(counting)
	calling, idle := measure(t, func(inner transport.Transport) transport.Transport {
		wrapper.Transport = inner
		return wrapper
	})
	if calling != bare || idle != parked || idle != 0 || wrapper.sent.Load() != 1 {
		t.Errorf("over a wrapper a call has %d goroutines and an idle Conn %d, without it %d and %d; the wrapper saw %d frames",
			calling, idle, bare, parked, wrapper.sent.Load())
	}
}

// A silent peer behind a wrapper is lost as one without.
//
// Guarantees: G-0014.26
func TestWrappersKeepLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, peerOut := io.Pipe()
		peerIn, out := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, peerIn) }() // the peer reads, and never answers
		wrapper := &counting{Transport: stdio.Pair(in, out)}
		began := time.Now()
		c := conn.New(wrapper, conn.Options{Dialect: probing{}, Tuning: conn.Tuning{Final: func(conn.Reason) bool { return true }}})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		<-ended
		if why := c.Status().Reason.Kind; why != conn.LivenessLost || wrapper.sent.Load() == 0 {
			t.Errorf("the Conn ended after %v because of %v, and %d frames, want a probe and the loss of a silent peer", time.Since(began), why, wrapper.sent.Load())
		}
		peerOut.Close()
		peerIn.Close()
	})
}

// answering answers every request with 7.
type answering func()

func (a answering) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	a()
	return json.RawMessage(`7`), nil
}

func (answering) ServeNotification(context.Context, *conn.Incoming) {}

// probing is JSON-RPC with a request that any peer answers.
type probing struct{}

func (probing) Classify(jsonrpc.Message) conn.Class          { return conn.Class{} }
func (probing) Cancel(jsonrpc.ID, error) (none conn.Message) { return none }
func (probing) Probe() conn.Message                          { return conn.Message{Method: "ping"} }
func (probing) Batches() bool                                { return false }

// goroutines counts those of the bubble.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("synctest bubble "))
}
