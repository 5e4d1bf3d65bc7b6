package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// maxGrowth is how many bytes the heap may grow between the first and the last hour of a day, in which a session makes 5,500 calls,
// as many pings, and 23 new links: 11 bytes for each call. Without a leak it grows by 40 kB at most, most of them in the second hour.
const maxGrowth = 64 << 10

// A session that calls, is silent, watches, cancels and loses its link for a day has no more goroutines and no more memory at the
// end than after an hour. Each call was executed once and has ended.
func TestADayLeavesNothing(t *testing.T) {
	for name, version := range map[string]string{"legacy": protocol.LatestLegacy, "modern": protocol.Latest} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := beginDay(t, version)
				d.hour()
				before, depths := inUse(), d.session.Conn().Stats().Depths
				for range 23 {
					d.hour()
				}
				after, stats := inUse(), d.session.Conn().Stats()
				if after.heap-before.heap > maxGrowth || after.goroutines != before.goroutines {
					t.Errorf("got %+v after a day and %+v after an hour, want as many goroutines, and %d bytes of heap more at most", after, before, maxGrowth)
				}
				if stats.Depths != depths || stats.Ended()+uint64(depths.Pending) != stats.Calls {
					t.Errorf("got %d calls, of which %d have ended, and %+v, want %+v as after an hour", stats.Calls, stats.Ended(), stats.Depths, depths)
				}
			})
		})
	}
}

// A day is a session, and what happens to it in each hour.
type day struct {
	t       *testing.T
	server  *server.Server
	link    transport.Link // the present one, at the server
	session *client.Session
	calls   int          // of the tool that counts its own
	read    atomic.Int64 // how often the watched resource was read
}

func beginDay(t *testing.T, version string) *day {
	t.Helper()
	d := &day{t: t, server: newServer(server.Options{OnSubscribe: func(context.Context, string) error { return nil }})}
	t.Cleanup(func() { d.server.Close(context.Background()) })
	var executed atomic.Int64
	server.AddTool(d.server, protocol.Tool{Name: "executed"}, func(context.Context, struct{}) (int, error) { return int(executed.Add(1)), nil })
	for _, uri := range []string{"day://watched", "day://other"} {
		server.AddResource(d.server, protocol.Resource{URI: uri, Name: uri}, func(context.Context) (string, error) { return "", nil })
	}
	over := inmem.New(func(link transport.Link) {
		d.link = link
		d.server.Accept(link)
	}, inmem.Options{})
	session, err := client.New(clientInfo, client.Options{
		ProtocolVersion: version, Calls: client.CallOptions{WaitForReady: true},
		OnEvent: func(context.Context, *client.Session, client.Event) {},
	}).Connect(t.Context(), over)
	if err != nil {
		t.Fatal(err)
	}
	d.session = session
	t.Cleanup(func() { session.Close(context.Background()) })
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for _, err := range session.Watch(t.Context(), "day://watched") {
			if err == nil {
				d.read.Add(1)
			}
		}
	}()
	t.Cleanup(func() { <-watching })
	return d
}

// hour lets an hour pass: a call each fifteen seconds, with a ping between any two because the server is silent for longer than
// five; every few minutes a change, a subscription, and a call that is cancelled; and at its end a lost link.
func (d *day) hour() {
	d.t.Helper()
	for n := range 240 {
		pass(15 * time.Second)
		d.call()
		if n%50 == 0 {
			d.change()
		}
	}
	d.link.Close(0)
	d.call()
	pass(time.Second) // until everything is restored
}

func (d *day) call() {
	d.t.Helper()
	d.calls++
	if got, err := client.Call[int](d.t.Context(), d.session, "executed", nil); err != nil || got != d.calls {
		d.t.Fatalf("got %d calls executed, %v, want %d", got, err, d.calls)
	}
}

// change has a resource and the list of tools change, a subscription begin and end, and a call be cancelled.
func (d *day) change() {
	d.t.Helper()
	before := d.read.Load()
	d.server.ResourceUpdated("day://watched")
	server.AddTool(d.server, protocol.Tool{Name: "new"}, func(context.Context, struct{}) (string, error) { return "", nil })
	d.server.RemoveTools("new")
	pass(time.Second)
	if d.read.Load() == before {
		d.t.Error("a change of the watched resource was not seen")
	}
	other := &protocol.SubscribeParams{URI: "day://other"}
	if err := d.session.Subscribe(d.t.Context(), other); err != nil {
		d.t.Errorf("subscribe: %v", err)
	}
	if err := d.session.Unsubscribe(d.t.Context(), &protocol.UnsubscribeParams{URI: other.URI}); err != nil {
		d.t.Errorf("unsubscribe: %v", err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
	defer cancel()
	if _, err := client.Call[string](ctx, d.session, "hang", struct{}{}); !errors.Is(err, context.DeadlineExceeded) {
		d.t.Errorf("got %v of a call that is cancelled, want %v", err, context.DeadlineExceeded)
	}
}
