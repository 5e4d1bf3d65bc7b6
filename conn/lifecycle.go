//bowline:pure

package conn

import "github.com/looplab/fsm"

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

// machines hold a looplab/fsm machine at rest in each state. They are asked
// whether a trigger may pass, and never moved, so that all Conns share them: a
// machine takes 2 kB and as much time as all else that an edge costs.
type machines map[State]*fsm.FSM

func newMachines() machines {
	all := machines{}
	for _, row := range lifecycle {
		for _, state := range append(row.Src, row.Dst) {
			all[State(state)] = newMachine(State(state))
		}
	}
	return all
}

func newMachine(state State) *fsm.FSM { return fsm.NewFSM(string(state), lifecycle, nil) }

// next returns the state that a trigger leads to, or reports that the machine
// refuses it.
func (m machines) next(from State, t trigger) (to State, ok bool) {
	if machine := m[from]; machine == nil || !machine.Can(string(t)) {
		return from, false
	}
	for _, row := range lifecycle {
		if row.Name == string(t) { // each has one row, and so one destination
			to = State(row.Dst)
		}
	}
	return to, true
}

func (c *core) state() State { return c.current }

// admit applies a trigger, or changes nothing and reports false. Nothing else
// changes the state.
func (c *core) admit(t trigger, reason Reason) bool {
	from := c.current
	to, ok := c.machines.next(from, t)
	if !ok {
		return false
	}
	c.current, c.reason = to, reason
	c.emit(effect{kind: transitioned, from: from, to: to, reason: reason, epoch: c.epoch, at: c.retryAt})
	return true
}
