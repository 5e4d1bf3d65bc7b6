package conn

import (
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// cancelOnMain cancels the request with that id, of whatever stream.
func (d *driver) cancelOnMain(id int64) {
	d.own(event{kind: cancelled, incoming: &Incoming{key: incomingKey{transport.Main, jsonrpc.IntegerID(id)}}})
}

// Guarantees: G-0019.8
func TestCancellationOnMainMeansTheEarliestOfThatID(t *testing.T) {
	d := driveAcceptor(t, Options{MaxServing: 2})
	d.ask(3, 5)
	earliest := d.ask(2, 5)
	d.ask(5, 6)
	waiting := d.ask(4, 7)
	d.forget()
	d.cancelOnMain(8)
	d.wantNothing("no request has this id")
	d.cancelOnMain(5)
	if fx := d.want(cancelServing); fx.incoming != earliest {
		t.Fatalf("the request of stream %d was cancelled", fx.incoming.key.stream)
	}
	d.wantEnded(2)
	d.cancelOnMain(7)
	d.wantEnded(4)
	if len(d.core.incoming.waiting) != 1 || d.core.incoming.waiting[0] == waiting {
		t.Fatal("what waits is not forgotten")
	}
}

// Ids of ours and of the peer's have nothing to do with each other.
//
// Guarantees: G-0019.7
func TestCancellationMeansThePeersOwnRequestFirst(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.own(event{kind: callMade, streaming: true, out: d.frame(1)})
	d.request(1)
	d.forget()
	d.cancel(1)
	d.want(cancelServing)
	d.wantGrant(1)
	d.wantNothing("our request of that id is another")
}

func TestRequestsAreRangedOverOnceEach(t *testing.T) {
	d := driveReady(t, Options{MaxServing: 2})
	want := map[*Incoming]bool{}
	for id := range int64(4) {
		want[d.request(id+1)] = true
	}
	for stop := range len(want) {
		seen := map[*Incoming]bool{}
		for request := range d.core.incoming.all() {
			if seen[request] = true; len(seen) > stop {
				break
			}
		}
		if len(seen) != stop+1 {
			t.Fatalf("%d requests were seen, want %d", len(seen), stop+1)
		}
	}
}
