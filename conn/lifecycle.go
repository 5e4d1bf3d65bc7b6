//bowline:pure

package conn

import (
	"context"

	"github.com/looplab/fsm"
)

// A State is where a Conn is in its life (ADR-0001).
type State string

const (
	Starting     State = "starting"     // a link is being opened, or is to be once there is a place at the Gate
	Initializing State = "initializing" // a link is attached; the handshake runs
	Ready        State = "ready"        // calls are accepted
	Backoff      State = "backoff"      // waiting for the next attempt
	Closing      State = "closing"      // terminal
)

// A trigger names an edge of the lifecycle.
type trigger string

const (
	opened     trigger = "opened"
	handshaken trigger = "handshaken"
	lost       trigger = "lost"
	retryDue   trigger = "retry due"
	closed     trigger = "closed"
)

// lifecycle is the whole life of a Conn; nothing else changes its state.
var lifecycle = fsm.Events{
	edge(opened, Initializing, Starting),
	edge(handshaken, Ready, Initializing),
	edge(lost, Backoff, Starting, Initializing, Ready),
	edge(retryDue, Starting, Backoff),
	edge(closed, Closing, Starting, Initializing, Ready, Backoff),
}

func edge(name trigger, to State, from ...State) fsm.EventDesc {
	sources := make([]string, len(from))
	for i, state := range from {
		sources[i] = string(state)
	}
	return fsm.EventDesc{Name: string(name), Src: sources, Dst: string(to)}
}

func newMachine(initial State) *fsm.FSM {
	return fsm.NewFSM(string(initial), lifecycle, nil)
}

func (c *core) state() State { return c.current }

// admit applies a trigger, or changes nothing and reports false. The machine is
// there for this edge alone: it takes a kilobyte, and an idle Conn needs none.
// The context is never one that can end: looplab/fsm refuses every later event
// after a cancelled one.
func (c *core) admit(t trigger, reason Reason) bool {
	from, machine := c.current, newMachine(c.current)
	if err := machine.Event(context.Background(), string(t)); err != nil {
		return false
	}
	c.current, c.reason = State(machine.Current()), reason
	c.emit(effect{kind: transitioned, from: from, to: c.current, reason: reason, epoch: c.epoch, at: c.retryAt})
	return true
}
