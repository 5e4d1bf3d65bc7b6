package conn

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/transport"
)

// A call is the state that Call or Notify shares with the loop while it waits for the
// outcome of one attempt. The loop settles it exactly once: it sends the outcome to done.
type call struct {
	done     chan outcome         // capacity one, so settle never blocks
	progress chan json.RawMessage // capacity one: the newest progress; nil without OnProgress
	slots    chan struct{}        // Conn.slots while the call holds a send slot; otherwise nil
	out      outboundFrame        // the frame of the call
	route    transport.Route      // the route of that frame
	settled  bool
}

// An outcome is how a call ended.
type outcome struct {
	ending
	result json.RawMessage
	at     instant // when the loop took the step that ended the call; 0 if it took none
}

// reset prepares a call that is over for another, which holds a send slot.
func (c *call) reset(slots chan struct{}) {
	c.progress, c.slots, c.settled = nil, slots, false
}

// settle gives the outcome to the caller. Only the loop calls it. A second outcome is a
// bug in the core, so settle panics instead of losing a reply.
func (c *call) settle(o outcome) {
	if c.settled {
		panic("conn: a request was settled twice")
	}
	c.settled = true
	c.releaseSlot()
	c.done <- o
}

func (c *call) releaseSlot() {
	if c.slots != nil {
		<-c.slots
		c.slots = nil
	}
}

// offer gives progress to the caller. It reports whether this replaced earlier progress
// that the caller had not received. Only the loop calls it.
func (c *call) offer(params json.RawMessage) (replaced bool) {
	if c.progress == nil {
		return false
	}
	select {
	case <-c.progress:
		replaced = true
	default:
	}
	c.progress <- params // the loop is the only sender, so there is room
	return replaced
}
