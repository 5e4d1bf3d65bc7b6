package client

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// This file is the table of what client and server say to each other. Only New uses the table as a
// whole, so the stages of a call know no method, and a method may use anything of a session.

// These are the requests that a program makes. Those of tasks and skills are in their files, and those
// that a session needs itself beside the type method.
var (
	listTools = row(protocol.MethodListTools, traits[protocol.ListToolsParams, protocol.ListToolsResult]{
		repeatable: true,
		check:      func(r *protocol.ListToolsResult) error { return present(r.Tools != nil, "tools") },
		learn: func(s *session, r *protocol.ListToolsResult) {
			s.learnTools(r)
		},
		cached: &cached[protocol.ListToolsParams, protocol.ListToolsResult]{
			about: func(p *protocol.ListToolsParams) (*string, protocol.Meta) { return p.Cursor, p.Meta },
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
		adjust:   (*session).forTool,
		arguments: func(s *session, p *protocol.CallToolParams) *transport.Arguments {
			return s.mirroredArguments(p)
		},
		again: relist,
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
			about: func(p *protocol.ListResourcesParams) (*string, protocol.Meta) { return p.Cursor, p.Meta },
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
			about: func(p *protocol.ListResourceTemplatesParams) (*string, protocol.Meta) { return p.Cursor, p.Meta },
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
			about: func(p *protocol.ReadResourceParams) (*string, protocol.Meta) { return &p.URI, p.Meta },
			hints: func(r *protocol.ReadResourceResult) *protocol.CacheableResult { return &r.CacheableResult },
		},
	})

	listPrompts = row(protocol.MethodListPrompts, traits[protocol.ListPromptsParams, protocol.ListPromptsResult]{
		repeatable: true,
		check:      func(r *protocol.ListPromptsResult) error { return present(r.Prompts != nil, "prompts") },
		cached: &cached[protocol.ListPromptsParams, protocol.ListPromptsResult]{
			about: func(p *protocol.ListPromptsParams) (*string, protocol.Meta) { return p.Cursor, p.Meta },
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
)

// requests contains the rows by name, for the innermost handler.
var requests = map[string]anyMethod{
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
var notifications = map[string]notification{
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
