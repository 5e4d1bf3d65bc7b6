package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A Report describes a node at one moment.
type Report struct {
	Member
	State     State         `json:"state"`
	LeaseAge  time.Duration `json:"leaseAge"`            // since the last renewal that was accepted was sent
	Sessions  int           `json:"sessions"`            // sessions that it serves
	Unsaved   int           `json:"unsaved"`             // of these: those of which the Engine has not the newest state yet
	Exclusive []string      `json:"exclusive,omitempty"` // servers that run on this node alone
	Hop       HopReport     `json:"hop"`                 // requests that were forwarded

	// ClockDifference is how far the node's clock is ahead of the clock of the node that
	// has asked, as far as the time of the answer tells. It is only information: no
	// decision of a cluster depends on it.
	ClockDifference time.Duration `json:"clockDifference"`

	RefusedRecords  uint64 `json:"refusedRecords"`  // values that did not open, or of another version
	RefusedMessages uint64 `json:"refusedMessages"` // control requests

	Clock time.Time `json:"clock"` // the time by the node's clock

	Keys *KeysReport `json:"keys,omitempty"` // nil: its version does not rotate keys

	Program json.RawMessage `json:"program,omitzero"` // what its program says; see Node.Describe
}

// A KeysReport says which keys of Node.Keys a node accepts, and not what they are.
type KeysReport struct {
	Used    bool     `json:"used"` // by its program
	Accepts []string `json:"accepts,omitempty"`
}

const (
	opPing   = "ping"
	opReport = "report"
	opDrain  = "drain"

	reportsTimeout = time.Second
)

// Report describes this node.
func (n *Node) Report() Report {
	state, _ := n.State()
	n.mu.Lock()
	r := Report{Keys: new(KeysReport), Member: n.ownMember(), State: state, RefusedRecords: n.sealer.refused.Load(), RefusedMessages: n.messages.Load(), Clock: n.wall().Round(0)}
	if e := n.table[n.leaseKey()]; e != nil && e.hold.until > 0 {
		r.LeaseAge = n.clock() - (e.hold.until - leaseHeld)
	}
	n.mu.Unlock()
	n.hooks.fill(&r)
	n.described(&r)
	return r
}

// maxProgram is the size of what a program says in a Report, in bytes.
const maxProgram = 32 << 10

// Describe has f say, in each Report of this node, what its program wants to show: JSON of at most 32 KiB, or nothing. It must not block. It replaces an earlier function.
func (n *Node) Describe(f func() json.RawMessage) {
	n.describes.Store(&f)
}

// described adds what the program says. What is no JSON, or too long, is left out: it would keep the whole Report from being read.
func (n *Node) described(r *Report) {
	if f := n.describes.Load(); f != nil {
		if said := (*f)(); len(said) <= maxProgram && json.Valid(said) {
			r.Program = said
		}
	}
}

// Reports collects the Reports of all members, by name: until all have answered, for at most
// a second. An error says which have not.
func (n *Node) Reports(ctx context.Context) ([]Report, error) {
	all, err := n.collect(ctx)
	all = append(all, n.Report())
	slices.SortFunc(all, func(a, b Report) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// collect collects the Reports of all other members.
func (n *Node) collect(ctx context.Context) (all []Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, reportsTimeout)
	defer cancel()
	to := map[string]string{}
	for _, m := range n.Members() {
		if m.Name != n.options.Node {
			to[m.Name] = m.challenge
		}
	}
	if len(to) == 0 {
		return nil, nil
	}
	request, err := newRequest(opReport, nil, to)
	if err != nil {
		return nil, err
	}
	sealed := n.seal(sealRequest, controlSubject, encode(request))
	if len(sealed) > maxControl {
		return nil, errTooLarge
	}
	sent := n.wall()
	var failed error
	for body, err := range n.engine.Collect(ctx, controlSubject, sealed) {
		if err != nil && ctx.Err() == nil {
			failed = err
		}
		if err != nil {
			break
		}
		response, err := n.openResponse(controlSubject, request.ID, body)
		var r Report
		if err != nil || response.decode(opReport, &r) != nil || to[response.Node] == "" {
			continue
		}
		r.ClockDifference = r.Clock.Sub(sent.Add(n.wall().Sub(sent) / 2))
		all = append(all, r)
		if delete(to, response.Node); len(to) == 0 {
			break
		}
	}
	if len(to) > 0 {
		return all, &SilentError{sortedKeys(to), failed}
	}
	return all, nil
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A SilentError says which members did not answer in time.
type SilentError struct {
	Nodes []string
	Err   error // why the Engine stopped waiting; nil if time was up
}

func (e *SilentError) Error() string {
	text := fmt.Sprintf("cluster: no answer from nodes %q", e.Nodes)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *SilentError) Unwrap() error { return e.Err }

// Drain announces that this node takes no new work, and ends the exclusive servers that run here
// when their calls have ended, so that other nodes can run them. It returns when they have ended,
// or soon after ctx has. The sessions of this node go to other nodes when the program shuts its
// Handler down, which it does when Draining is closed.
func (n *Node) Drain(ctx context.Context) error {
	n.mu.Lock()
	if !n.draining {
		n.draining = true
		close(n.drains)
	}
	n.publish()
	n.mu.Unlock()
	return n.hooks.drain(ctx)
}

// Draining returns a channel that is closed when Drain was called, here or by DrainNode of
// another process. A program that ends then closes its server, and this node.
func (n *Node) Draining() <-chan struct{} { return n.drains }

// DrainNode asks a node to drain. It returns when the node has begun.
func (n *Node) DrainNode(ctx context.Context, name string) error {
	return n.ask(ctx, name, opDrain, nil, nil)
}

// handleOwn registers the operations of package cluster itself.
func (n *Node) handleOwn() {
	n.handle(opPing, func(context.Context, json.RawMessage) (any, error) { return nil, nil })
	n.handle(opReport, func(context.Context, json.RawMessage) (any, error) { return n.Report(), nil })
	n.handle(opDrain, func(context.Context, json.RawMessage) (any, error) {
		_ = n.goUnlessClosed(func() { // a node that is closed has drained
			if err := n.Drain(n.ctx); err != nil {
				n.log.Warn("cluster: the drain was not complete", "err", err)
			}
		})
		return nil, nil
	})
}
