package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A method describes one request that a session makes: its params P and its result R.
// protocol.MethodInfo contains what the protocol says about it: its revisions, and the
// capability that it needs.
type method[P, R any, Q requestParams[P]] struct {
	protocol.Method
	traits[P, R]
}

// traits are what a row of the table adds to protocol.MethodInfo.
type traits[P, R any] struct {
	// repeatable says that the server may execute the request twice without harm.
	repeatable bool

	// name returns what the request is about, for the transport: the tool, the
	// prompt or the resource. Nil: nothing.
	name func(*P) string

	// counts says that metrics may count by this name, because there are few different
	// ones.
	counts bool

	// check refuses a result that lacks a required member. Nil: none is required.
	check func(*R) error

	// input and required give access to the members of a method that a server may
	// answer with input_required (2026-07-28 basic/patterns/mrtr). Nil: it may not.
	input    func(*P) *protocol.InputParams
	required func(*R) *protocol.InputRequired

	// adjust changes the options of one call. Nil: no change.
	adjust func(*session, *P, *CallOptions)

	// arguments returns the arguments that the transport mirrors. Nil: none.
	arguments func(*session, *P) *transport.Arguments

	// relists says that the client lists the tools again if the server refuses the
	// headers of a request, and then repeats the request, because the new list may say
	// which headers are needed.
	relists bool

	// task stores the task that a call has become, and reports whether there is one.
	// AsTask makes params ask a legacy server for a task, if the program wants one or
	// the tool requires it, and the server supports tasks. It reports whether params now
	// ask. Await waits for the task. Nil: the method never becomes a task.
	task   func(r *R, raw json.RawMessage, modern bool) (became bool, err error)
	asTask func(s *session, p *P, wanted, makes bool) bool
	await  func(context.Context, *Session, *R) (*R, error)

	// learn stores what later requests need from a result. Nil: nothing.
	learn func(*session, *R)

	// cached says which results may be kept and reused. Nil: none.
	cached *cached[P, R]
}

// requestParams are params that carry _meta.
type requestParams[P any] interface {
	*P
	SetMeta(key string, value json.RawMessage)
	AddMeta(members protocol.Meta)
	HasMeta() bool
}

func row[P, R any, Q requestParams[P]](name string, t traits[P, R]) *method[P, R, Q] {
	info, _ := protocol.MethodInfo(name)
	return &method[P, R, Q]{Method: info, traits: t}
}

// This is the table of requests that a session makes.
var (
	ping = row(protocol.MethodPing, traits[protocol.PingParams, protocol.EmptyResult]{repeatable: true})

	// discover replaces ping in the modern revisions, which have no ping.
	discover = row(protocol.MethodDiscover, traits[protocol.PingParams, protocol.EmptyResult]{repeatable: true})

	listTools = row(protocol.MethodListTools, traits[protocol.ListToolsParams, protocol.ListToolsResult]{
		repeatable: true,
		check:      func(r *protocol.ListToolsResult) error { return present(r.Tools != nil, "tools") },
		learn: func(s *session, r *protocol.ListToolsResult) {
			s.learnTools(r)
		},
		cached: &cached[protocol.ListToolsParams, protocol.ListToolsResult]{
			about: func(p *protocol.ListToolsParams) (string, protocol.Meta) { return textOf(p.Cursor), p.Meta },
			hints: func(r *protocol.ListToolsResult) *protocol.CacheableResult { return &r.CacheableResult },
			next:  func(r *protocol.ListToolsResult) *string { return r.NextCursor },
		},
	})
	callTool = row(protocol.MethodCallTool, traits[protocol.CallToolParams, protocol.CallToolResult]{
		name:     func(p *protocol.CallToolParams) string { return p.Name },
		counts:   true,
		check:    hasContent,
		input:    func(p *protocol.CallToolParams) *protocol.InputParams { return &p.InputParams },
		required: func(r *protocol.CallToolResult) *protocol.InputRequired { return r.InputRequired },
		adjust:   func(s *session, p *protocol.CallToolParams, o *CallOptions) { s.forTool(p.Name, o) },
		arguments: func(s *session, p *protocol.CallToolParams) *transport.Arguments {
			return s.mirroredArguments(p)
		},
		relists: true,
		task: func(r *protocol.CallToolResult, raw json.RawMessage, modern bool) (_ bool, err error) {
			r.Task, err = becameTask(raw, modern, r.Type())
			return r.Task != nil, err
		},
		asTask: func(s *session, p *protocol.CallToolParams, wanted, makes bool) bool {
			wanted = wanted || s.client.options.Tasks && s.tools.of(p.Name).taskOnly
			if wanted && makes && p.Task == nil {
				p.Task = new(protocol.TaskMetadata)
			}
			return p.Task != nil
		},
		await: awaitTask,
	})

	listResources = row(protocol.MethodListResources, traits[protocol.ListResourcesParams, protocol.ListResourcesResult]{
		repeatable: true,
		check:      func(r *protocol.ListResourcesResult) error { return present(r.Resources != nil, "resources") },
		cached: &cached[protocol.ListResourcesParams, protocol.ListResourcesResult]{
			about: func(p *protocol.ListResourcesParams) (string, protocol.Meta) { return textOf(p.Cursor), p.Meta },
			hints: func(r *protocol.ListResourcesResult) *protocol.CacheableResult { return &r.CacheableResult },
			next:  func(r *protocol.ListResourcesResult) *string { return r.NextCursor },
		},
	})
	listResourceTemplates = row(protocol.MethodListResourceTemplates, traits[protocol.ListResourceTemplatesParams, protocol.ListResourceTemplatesResult]{
		repeatable: true,
		check: func(r *protocol.ListResourceTemplatesResult) error {
			return present(r.ResourceTemplates != nil, "resourceTemplates")
		},
		cached: &cached[protocol.ListResourceTemplatesParams, protocol.ListResourceTemplatesResult]{
			about: func(p *protocol.ListResourceTemplatesParams) (string, protocol.Meta) { return textOf(p.Cursor), p.Meta },
			hints: func(r *protocol.ListResourceTemplatesResult) *protocol.CacheableResult { return &r.CacheableResult },
			next:  func(r *protocol.ListResourceTemplatesResult) *string { return r.NextCursor },
		},
	})
	readResource = row(protocol.MethodReadResource, traits[protocol.ReadResourceParams, protocol.ReadResourceResult]{
		repeatable: true,
		name:       func(p *protocol.ReadResourceParams) string { return p.URI },
		check:      func(r *protocol.ReadResourceResult) error { return present(r.Contents != nil, "contents") },
		input:      func(p *protocol.ReadResourceParams) *protocol.InputParams { return &p.InputParams },
		required:   func(r *protocol.ReadResourceResult) *protocol.InputRequired { return r.InputRequired },
		cached: &cached[protocol.ReadResourceParams, protocol.ReadResourceResult]{
			about: func(p *protocol.ReadResourceParams) (string, protocol.Meta) { return p.URI, p.Meta },
			hints: func(r *protocol.ReadResourceResult) *protocol.CacheableResult { return &r.CacheableResult },
		},
	})
	subscribe   = row(protocol.MethodSubscribe, traits[protocol.SubscribeParams, protocol.EmptyResult]{repeatable: true})
	unsubscribe = row(protocol.MethodUnsubscribe, traits[protocol.UnsubscribeParams, protocol.EmptyResult]{repeatable: true})

	listPrompts = row(protocol.MethodListPrompts, traits[protocol.ListPromptsParams, protocol.ListPromptsResult]{
		repeatable: true,
		check:      func(r *protocol.ListPromptsResult) error { return present(r.Prompts != nil, "prompts") },
		cached: &cached[protocol.ListPromptsParams, protocol.ListPromptsResult]{
			about: func(p *protocol.ListPromptsParams) (string, protocol.Meta) { return textOf(p.Cursor), p.Meta },
			hints: func(r *protocol.ListPromptsResult) *protocol.CacheableResult { return &r.CacheableResult },
			next:  func(r *protocol.ListPromptsResult) *string { return r.NextCursor },
		},
	})
	getPrompt = row(protocol.MethodGetPrompt, traits[protocol.GetPromptParams, protocol.GetPromptResult]{
		repeatable: true,
		name:       func(p *protocol.GetPromptParams) string { return p.Name },
		counts:     true,
		check:      func(r *protocol.GetPromptResult) error { return present(r.Messages != nil, "messages") },
		input:      func(p *protocol.GetPromptParams) *protocol.InputParams { return &p.InputParams },
		required:   func(r *protocol.GetPromptResult) *protocol.InputRequired { return r.InputRequired },
	})
	complete = row(protocol.MethodComplete, traits[protocol.CompleteParams, protocol.CompleteResult]{
		repeatable: true,
		check: func(r *protocol.CompleteResult) error {
			return present(r.Completion.Values != nil, "completion values")
		},
	})
	setLogLevel = row(protocol.MethodSetLogLevel, traits[protocol.SetLogLevelParams, protocol.EmptyResult]{repeatable: true})
)

// requests contains the rows by name, for the innermost handler.
var requests = map[string]interface {
	sendAny(context.Context, *Request) (any, error)
	countsByName() bool
}{
	ping.Name: ping, discover.Name: discover,
	listTools.Name: listTools, callTool.Name: callTool,
	listResources.Name: listResources, listResourceTemplates.Name: listResourceTemplates, readResource.Name: readResource,
	listSkills.Name: listSkills, getSkill.Name: getSkill, readDirectory.Name: readDirectory,
	getTask.Name: getTask, updateTask.Name: updateTask, cancelTask.Name: cancelTask, taskResult.Name: taskResult, listTasks.Name: listTasks,
	subscribe.Name: subscribe, unsubscribe.Name: unsubscribe,
	listPrompts.Name: listPrompts, getPrompt.Name: getPrompt, complete.Name: complete, setLogLevel.Name: setLogLevel,
}

// hasContent also accepts a result with only structured content, which some servers
// send.
func hasContent(r *protocol.CallToolResult) error {
	return present(r.Content != nil || len(r.StructuredContent) > 0, "content")
}

func textOf(cursor *string) string {
	if cursor == nil {
		return ""
	}
	return *cursor
}

func present(ok bool, member string) error {
	if !ok {
		return errors.New("it has no " + member)
	}
	return nil
}

// A Request is a request or notification as middleware sees it.
type Request struct {
	Method string

	// Params points to the params of the method, for instance
	// *protocol.CallToolParams. They belong to the request: middleware may change
	// them. They are a json.RawMessage for methods that this package does not know,
	// and for everything that Session.Request and Session.Notify send.
	Params any

	Session      *Session
	Incoming     bool // the server sent it; false: this client sends it
	Notification bool // there is no result

	last  *attempt       // for an outgoing request: its last attempt, set when it was sent
	asked *conn.Incoming // for a question that is a request: that request
}

// ID returns the id of the last attempt of a request that this client has sent, after the
// next Handler has returned. It returns 0 for other messages, and if nothing was sent.
func (r *Request) ID() int64 {
	if r.last == nil {
		return 0
	}
	return r.last.id
}

// Epoch returns the epoch of the last attempt (Status.Epoch), after the next Handler has
// returned. It returns 0 for an incoming message, and if nothing was sent.
func (r *Request) Epoch() uint64 {
	if r.ID() == 0 || r.last.peer == nil {
		return 0
	}
	return r.last.peer.incarnation.Epoch()
}

// Network returns what is known about the way to the server: that of the last attempt
// once the next Handler has returned, and otherwise the session's present server.
func (r *Request) Network() transport.Network {
	p := r.Session.peer.Load()
	if r.last != nil && r.last.peer != nil {
		p = r.last.peer
	}
	if p == nil {
		return transport.Network{}
	}
	return p.incarnation.Network()
}

// QuestionID returns the id of a request that the server has sent. It is zero for other
// messages, and for a question that came with the answer to a call.
func (r *Request) QuestionID() jsonrpc.ID {
	if r.asked == nil {
		return jsonrpc.ID{}
	}
	return r.asked.ID()
}

// A Handler handles a request or notification on its way through the middleware. The
// result is a pointer to the result of the method, such as *protocol.CallToolResult,
// or a json.RawMessage if Params is one. For a notification it is nil.
type Handler func(ctx context.Context, r *Request) (result any, err error)

// Middleware wraps a Handler. It may change the request, answer it without calling
// next, call next more than once, or change the result.
//
// All calls of a session, and all questions and notifications from its server, pass
// through the same middleware; see Request.Incoming. A call passes through it once,
// however often it is retried or asked for more input. What a session sends on its
// own does not pass through middleware: the handshake, probes, subscriptions/listen,
// and cancellation.
type Middleware func(next Handler) Handler

// On returns middleware for the requests of one method, which the type of the params
// selects. It passes on all other requests unchanged, including those of
// Session.Request, whose params are raw.
func On[P, R any](f func(ctx context.Context, p *P, next func(context.Context, *P) (*R, error)) (*R, error)) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (any, error) {
			params, ok := r.Params.(*P)
			if !ok {
				return next(ctx, r)
			}
			result, err := f(ctx, params, func(ctx context.Context, p *P) (*R, error) {
				changed := *r
				changed.Params = p
				return as[R](next(ctx, &changed))
			})
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}

// as converts a result from middleware.
func as[R any](result any, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	typed, ok := result.(*R)
	if !ok || typed == nil {
		return nil, fmt.Errorf("client: middleware returned %T, not a %T", result, typed)
	}
	return typed, nil
}

// chain wraps the innermost handler in the middleware, the first of which becomes the
// outermost. Without middleware it returns nil, and requests skip the chain.
func chain(all []Middleware) Handler {
	if len(all) == 0 {
		return nil
	}
	handler := Handler(dispatch)
	for i := len(all) - 1; i >= 0; i-- {
		handler = all[i](handler)
	}
	return handler
}

// dispatch is the innermost handler.
func dispatch(ctx context.Context, r *Request) (any, error) {
	raw, isRaw := r.Params.(json.RawMessage)
	switch {
	case r.Incoming && r.Notification:
		r.Session.receive(ctx, r)
		return nil, nil
	case r.Incoming:
		return r.Session.answer(ctx, r)
	case r.Notification:
		return nil, r.Session.notify(ctx, r)
	case isRaw:
		return r.Session.sendRaw(ctx, r.Method, raw)
	}
	if known, ok := requests[r.Method]; ok {
		return known.sendAny(ctx, r)
	}
	return nil, fmt.Errorf("client: %s: params are a %T, not a json.RawMessage", r.Method, r.Params)
}

func (m *method[P, R, Q]) countsByName() bool { return m.counts }

// sendAny sends a request that has passed the middleware.
func (m *method[P, R, Q]) sendAny(ctx context.Context, r *Request) (any, error) {
	params, ok := r.Params.(*P)
	if !ok || params == nil {
		return nil, fmt.Errorf("client: %s: middleware passed on %T, not a %T", m.Name, r.Params, params)
	}
	result, last, err := m.send(ctx, r.Session, params)
	*r.last = last
	if err != nil {
		return nil, err
	}
	return result, nil
}

// A question describes one request that a server makes.
type question struct {
	// offered reports whether the client has a handler for it.
	offered func(*Options) bool
	params  func() any // returns a new value for the params
	answer  func(context.Context, *Session, any) (any, error)
}

// questions is the table of requests that a server makes: as requests in the legacy
// revisions, and inside of results in the modern ones.
var questions = map[string]question{
	protocol.MethodElicit: {
		offered: func(o *Options) bool { return o.Elicit != nil || o.ElicitURL != nil },
		params:  func() any { return new(protocol.ElicitParams) },
		answer: func(ctx context.Context, s *Session, p any) (any, error) {
			return s.elicit(ctx, p.(*protocol.ElicitParams))
		},
	},
	protocol.MethodCreateMessage: {
		offered: func(o *Options) bool { return o.Sample != nil },
		params:  func() any { return new(protocol.CreateMessageParams) },
		answer: func(ctx context.Context, s *Session, p any) (any, error) {
			return s.sample(ctx, p.(*protocol.CreateMessageParams))
		},
	},
	protocol.MethodListRoots: {
		offered: func(o *Options) bool { return o.Roots != nil },
		params:  func() any { return new(protocol.ListRootsParams) },
		answer:  func(ctx context.Context, s *Session, _ any) (any, error) { return s.roots(ctx) },
	},
}

// notifications is the table of notifications that a server sends, with their params and
// their events. Any other notification becomes a Notification.
var notifications = map[string]struct {
	params func() any // returns a new value for the params
	event  func(params any) Event
}{
	protocol.NotificationToolsListChanged:     {newNotificationParams, func(any) Event { return &ToolsChanged{} }},
	protocol.NotificationPromptsListChanged:   {newNotificationParams, func(any) Event { return &PromptsChanged{} }},
	protocol.NotificationResourcesListChanged: {newNotificationParams, func(any) Event { return &ResourcesChanged{} }},
	protocol.NotificationResourcesUpdated: {
		func() any { return new(protocol.ResourceUpdatedParams) },
		func(p any) Event { return &ResourceUpdated{URI: p.(*protocol.ResourceUpdatedParams).URI} },
	},
	protocol.NotificationMessage: {
		func() any { return new(protocol.LogMessageParams) },
		func(p any) Event {
			message := p.(*protocol.LogMessageParams)
			return &LogMessage{Level: message.Level, Logger: message.Logger, Data: message.Data}
		},
	},
	protocol.NotificationElicitationComplete: {
		func() any { return new(protocol.ElicitationCompleteParams) },
		func(p any) Event {
			return &ElicitationComplete{ID: p.(*protocol.ElicitationCompleteParams).ElicitationID}
		},
	},
}

func newNotificationParams() any { return new(protocol.NotificationParams) }

// methodNotFound returns the answer to a question for which the client has no handler.
func methodNotFound(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
}
