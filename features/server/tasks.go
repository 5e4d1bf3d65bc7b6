package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/features/server/internal/tasks"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

var (
	// ErrTaskCancelled is the context cause of a handler whose task the client has
	// cancelled.
	ErrTaskCancelled = tasks.ErrCancelled

	// ErrTaskExpired is the context cause of a handler when the TTL of its task has
	// passed.
	ErrTaskExpired = tasks.ErrExpired
)

// asksFirst is how long a call of a tool that Reruns stays a call.
const asksFirst = time.Second

// taskMethods are the tasks of a server.
type taskMethods struct {
	*tasks.Tasks // nil if there are none
	options      TaskOptions
	server       *Server
}

// init makes the tasks of a server that permits them, from options in which each zero is its default. It is called
// once, by New, after the rounds have their limits.
func (ts *taskMethods) init(s *Server, o *TaskOptions) {
	ts.server = s
	if o == nil {
		return
	}
	ts.options = *o
	ts.options.After = max(o.After, 0)
	ts.options.TTL = cmp.Or(max(o.TTL, 0), 24*time.Hour)
	ts.options.PollInterval = cmp.Or(max(o.PollInterval, 0), time.Second)
	ts.options.MaxRunning = cmp.Or(max(o.MaxRunning, 0), 1024)
	ts.options.MaxRunningBytes = cmp.Or(max(o.MaxRunningBytes, 0), s.options.MaxMemory/16)
	if o.Store == nil {
		ts.options.Store = &MemoryTaskStore{MaxBytes: s.options.MaxMemory / 24}
	}
	// shared: handlers of tasks | TaskOptions.MaxRunning places | one | the call is refused with -32050 | `Options.Audit`
	// shared: their requests | TaskOptions.MaxRunningBytes bytes | 64 KiB | the call is refused with -32050 | `Options.Audit`
	of := places.Places{
		Handlers: share.NewPlaces(ts.options.MaxRunning), Bytes: share.NewLasting(ts.options.MaxRunningBytes, places.Piece(ts.options.MaxRunningBytes, s.options.MaxMemory/16)),
	}
	ts.Tasks = tasks.Of(tasks.Config{
		TTL: ts.options.TTL, PollInterval: ts.options.PollInterval, Store: recordStore{ts.options.Store}, Gone: o.Gone, Node: s.options.Node,
		Places: of, PageSize: s.options.PageSize, MaxRounds: s.rounds.options.MaxRounds,
		Tell:     func(id string) { s.subscriptions.Tell(changes.Task(id)) },
		TellHere: func(id string) { s.subscriptions.TellHere(changes.Task(id)) },
	})
}

// has reports whether the server has tasks, or its program has them: that serves their methods then (Options.Route).
func (ts *taskMethods) has() bool {
	return ts.Tasks != nil || ts.server.options.Route[protocol.MethodGetTask] != nil
}

// offer adds the capabilities of a server with tasks. A program that serves their methods has those of both eras.
func (ts *taskMethods) offer(c *protocol.ServerCapabilities, modern bool) {
	switch {
	case !ts.has():
	case modern:
		c.Extensions = withExtension(c.Extensions, protocol.ExtensionTasks, json.RawMessage("{}"))
	case ts.options.Legacy || ts.Tasks == nil:
		c.Tasks = &protocol.TasksCapability{
			Cancel:   &protocol.Capability{},
			Requests: map[string]map[string]protocol.Capability{"tools": {"call": {}}},
		}
	}
}

// withExtension adds an extension to a map, unless the map has it. It copies the map,
// which may be shared.
func withExtension(all map[string]json.RawMessage, name string, settings json.RawMessage) map[string]json.RawMessage {
	with := map[string]json.RawMessage{name: settings}
	for key, value := range all {
		with[key] = value
	}
	return with
}

// mayBe reports whether a call becomes a task, or may become one. It fails if the
// client must support tasks and does not.
func (ts *taskMethods) mayBe(c *call, t *tool, params *protocol.CallToolParams) (bool, error) {
	support := t.taskSupport
	switch {
	case ts.Tasks == nil || !revision.Has(c.Client.ProtocolVersion, revision.Tasks):
		return false, nil
	case c.modern:
		return ts.mayBeModern(c, support)
	case !ts.options.Legacy:
		return false, nil
	case params.Task != nil && support == protocol.TaskForbidden:
		return false, refusal.New(jsonrpc.CodeMethodNotFound, "tool %q cannot be called as a task", params.Name)
	case params.Task == nil && support == protocol.TaskRequired:
		return false, refusal.New(jsonrpc.CodeMethodNotFound, "tool %q has to be called as a task", params.Name)
	default:
		return params.Task != nil, nil
	}
}

// mayBeModern decides by the tool and by what the client declares: a modern client does not ask for
// a task, but takes what it gets.
func (ts *taskMethods) mayBeModern(c *call, support protocol.TaskSupport) (bool, error) {
	if support == protocol.TaskForbidden {
		return false, nil
	}
	declared := c.Client.Capabilities.Has("extensions." + protocol.ExtensionTasks)
	if !declared && support == protocol.TaskRequired {
		return false, undeclared(c, protocol.ExtensionTasks)
	}
	return declared, nil
}

// offered reports whether the methods of tasks are offered.
func (ts *taskMethods) offered(c *call) bool {
	return ts.Tasks != nil && (c.modern || c.offered.Has("tasks"))
}

// allowed refuses modern clients that did not declare the extension, for all methods of
// tasks.
func (ts *taskMethods) allowed(c *call) error { return declared(c, protocol.ExtensionTasks) }

// encodeCalled encodes the result of tools/call. Each era encodes a task differently.
func encodeCalled(encodeResult func(*call, []byte, any) ([]byte, error)) func(*call, []byte, any) ([]byte, error) {
	return func(c *call, dst []byte, result any) ([]byte, error) {
		if typed, ok := result.(*protocol.CallToolResult); ok && typed != nil && typed.Task != nil && !c.modern {
			created := tasks.Legacy(&tasks.Record{Task: protocol.DetailedTask{Task: *typed.Task}})
			return encode(c, dst, &protocol.LegacyCreateTaskResult{Meta: typed.Meta, Task: created})
		}
		return encodeResult(c, dst, result)
	}
}

// offerList lets a client list its tasks, if it is authenticated. It copies what it
// changes.
func (ts *taskMethods) offerList(c *call, result *protocol.InitializeResult) *protocol.InitializeResult {
	if result.Capabilities.Tasks == nil || !ts.has() || c.Origin.Identity == "" {
		return result
	}
	copied, capability := *result, *result.Capabilities.Tasks
	capability.List = &protocol.Capability{}
	copied.Capabilities.Tasks = &capability
	return &copied
}

// watch notifies a legacy client of changes of a task that it started.
// Two steps: what the client wants, and where the hub looks for those who do. A session that has ended wants nothing,
// and must not stay in the hub.
func (ts *taskMethods) watch(p *peer, id string) {
	if p.changes.Want(changes.Task(id)) {
		p.server.hub.Watch(&p.changes, id)
	}
}

// statusOf returns the params of a status notification for a legacy client. It fails
// with ErrNotFound if the task no longer exists. After a task has ended, it sends one
// more notification.
func (ts *taskMethods) statusOf(ctx context.Context, p *peer, id string) (any, error) {
	r, err := ts.look(ctx, p, id)
	if errors.Is(err, ErrNotFound) || err == nil && r.Task.Status.Ended() {
		// After this notification there can be none: the outcome of a task does not change.
		p.changes.Unwant(changes.Task(id))
		p.server.hub.Unwatch(&p.changes, id)
	}
	if err != nil {
		return nil, err
	}
	return &protocol.TaskStatusParams{LegacyTask: tasks.Legacy(r)}, nil
}
