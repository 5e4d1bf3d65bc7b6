package gosdk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/gateway/gosdk"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
)

// memory returns a transport over the SDK's own connections in memory, with a link of this package at the other end, too.
func memory(t *testing.T, accept func(transport.Link)) transport.Transport {
	return gosdk.Over(func() mcp.Transport {
		ours, theirs := mcp.NewInMemoryTransports()
		link, err := gosdk.Over(func() mcp.Transport { return theirs }).Open(t.Context())
		if err != nil {
			t.Error(err)
			return ours
		}
		accept(link)
		return ours
	})
}

// What package proptest asks of a connection holds over connections of the SDK. Of LinkContract one clause cannot hold: the SDK
// parses what it sends.
//
// Guarantees: G-0107.3
func TestConnectionsOverTheSDK(t *testing.T) {
	peer := memory(t, func(link transport.Link) { go proptest.Echo(link) })
	o := proptest.Options{RealTime: true, Iterations: 5, Concurrent: 10, Window: 5 * time.Millisecond, Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 100 * time.Millisecond}}}
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"correlation": proptest.Correlation, "leaks": proptest.NoLeaks, "cancellation": proptest.CancelIdempotent, "stop": proptest.StopAnywhere, "restart": proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) { suite(t, peer, o) })
	}
}

// A heard is the receiver of a link that counts frames.
type heard struct {
	transport.Receiver
	frames chan string
}

func (h heard) Receive(in transport.Inbound)    { h.frames <- string(in.Frame) }
func (h heard) Ended()                          {}
func (h heard) Lost(transport.Loss)             {}
func (h heard) Writable()                       {}
func (h heard) Failed(transport.Failure)        {}
func (h heard) StreamLost(transport.StreamLoss) {}

// What a link has accepted arrives before it closes.
//
// Guarantees: G-0107.3
func TestCloseSendsWhatIsQueued(t *testing.T) {
	links := make(chan transport.Link, 1)
	ours, err := memory(t, func(link transport.Link) { links <- link }).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs := <-links
	const frames = 16
	at := heard{frames: make(chan string, frames)}
	theirs.Bind(at)
	theirs.Grant(transport.Main, frames)
	ours.Bind(heard{})
	for i := range frames {
		if err := ours.Send(transport.Outbound{Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n%d"}`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ours.Close(10 * time.Second); err != nil {
		t.Error(err)
	}
	for i := range frames {
		select {
		case got := <-at.frames:
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"n%d"}`, i); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		case <-timeout(t).Done():
			t.Fatalf("frame %d never came", i)
		}
	}
	if err := theirs.Close(time.Second); err != nil {
		t.Error(err)
	}
}
