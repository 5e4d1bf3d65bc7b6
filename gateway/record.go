package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

const (
	keptChanges   = 128 // of the state of a server
	keptDurations = 256 // of its answered requests
	keptTools     = 128 // of which calls are counted each for itself
	longestTool   = 256 // bytes of a name by which calls are counted
)

// A record is what people want to know of a server that nothing else remembers: its past states, and its requests. Its zero value is
// ready. It is bounded: what is in flight is so by the limits of package server.
type record struct {
	mu        sync.Mutex
	changes   []admin.Change // the oldest first
	durations []time.Duration
	next      int // where the next duration is written, once there are keptDurations
	running   map[*inFlight]bool

	answered, unanswered uint64
	waited               time.Duration // for all answers together

	called map[ending]uint64 // calls of tools
	tools  map[string]bool   // that have a name there
}

// An ending is how calls of a tool have ended.
type ending struct{ tool, outcome, delivery string }

// An inFlight is a request of a client while it runs.
type inFlight struct {
	method  string
	params  json.RawMessage
	request *server.Request // as it has come from the client; nil: the client has gone
	began   time.Time
}

// begin notes a request of a client. The function that it returns notes its end; answered says that its duration is one of the server.
func (r *record) begin(ctx context.Context, method string, params json.RawMessage) (end func(answered bool)) {
	f := &inFlight{method, params, server.RequestFrom(ctx), time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = make(map[*inFlight]bool)
	}
	r.running[f] = true
	return func(answered bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, f)
		if !answered {
			r.unanswered++
			return
		}
		r.addDuration(time.Since(f.began))
	}
}

// describe says what a request is about. Its params are read only now: nobody may look.
func (f *inFlight) describe() admin.Request {
	r := admin.Request{Method: f.method, Target: targetOf(f.method, f.params), Began: f.began}
	if f.request != nil {
		r.Program = programOf(f.request.Client)
	}
	return r
}

// targetOf returns what a request is about, such as the name of a tool.
func targetOf(method string, params json.RawMessage) string {
	info, _ := protocol.MethodInfo(method)
	return info.NameOf(params)
}

// addDuration keeps a duration, in place of the oldest one. Waiting for a person counts too: it is what clients have waited.
func (r *record) addDuration(d time.Duration) {
	r.answered, r.waited = r.answered+1, r.waited+d
	if len(r.durations) < keptDurations {
		r.durations = append(r.durations, d)
		return
	}
	r.durations[r.next] = d
	r.next = (r.next + 1) % keptDurations
}

// endCall notes how a call of a tool has ended. A server can offer other tools again and again, with long names: beyond keptTools and longestTool they are counted as one.
func (r *record) endCall(e ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.called == nil {
		r.called, r.tools = make(map[ending]uint64), make(map[string]bool)
	}
	if len(e.tool) > longestTool || !r.tools[e.tool] && len(r.tools) == keptTools {
		e.tool = admin.OtherTools
	} else {
		r.tools[e.tool] = true
	}
	r.called[e]++
}

// onTransition notes a change of state. It runs on the goroutine for the events of a connection, one at a time.
func (r *record) onTransition(t telemetry.Transition) {
	change := admin.ChangeOf(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.changes) == keptChanges {
		r.changes = append(r.changes[:0], r.changes[1:]...)
	}
	r.changes = append(r.changes, change)
}

// describe fills in the numbers of a report.
func (r *record) describe(s *admin.ServerReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Calls, s.Answered, s.Unanswered, s.Waited = len(r.running), r.answered, r.unanswered, r.waited.Seconds()
	if len(r.durations) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(r.durations))
	at := func(share int) float64 {
		return float64(sorted[(len(sorted)-1)*share/100].Microseconds()) / 1000
	}
	s.P50, s.P99 = at(50), at(99)
}

// calls returns how many calls of each tool have ended in which way, in the order of the names.
func (r *record) calls(of string) (all []admin.ToolCalls) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e, n := range r.called {
		all = append(all, admin.ToolCalls{Server: of, Tool: e.tool, Outcome: e.outcome, Delivery: e.delivery, Count: n})
	}
	slices.SortFunc(all, func(a, b admin.ToolCalls) int {
		return cmp.Or(cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Delivery, b.Delivery))
	})
	return all
}

// history returns the changes and what is in flight, the newest change and the oldest request first.
func (r *record) history() (changes []admin.Change, running []admin.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes = slices.Clone(r.changes)
	slices.Reverse(changes)
	for f := range r.running {
		running = append(running, f.describe())
	}
	slices.SortFunc(running, func(a, b admin.Request) int { return a.Began.Compare(b.Began) })
	return changes, running
}

// about returns what a request is about that is in flight.
func (r *record) about(request *server.Request) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.running {
		if f.request == request {
			return targetOf(f.method, f.params)
		}
	}
	return ""
}

// countBySession adds to the requests in flight of each legacy client.
func (r *record) countBySession(calls map[*server.Session]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.running {
		if f.request != nil && f.request.Session != nil {
			calls[f.request.Session]++
		}
	}
}

// hook makes a session tell of its changes of state. With a hook for them, package conn logs none to the default log: it would if there were
// no hook, so it is told to.
func (r *record) hook(o *client.Options) {
	if o.Conn.Log == nil && o.Conn.Hooks.Transition == nil {
		o.Conn.Log = slog.Default()
	}
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, telemetry.Hooks{Transition: r.onTransition})
}

func programOf(c *server.Client) string { return c.Info.Name + " " + c.Info.Version }
