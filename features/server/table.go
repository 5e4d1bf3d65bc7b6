package server

import (
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/features/server/internal/tasks"
	"github.com/bowline-mcp/bowline/protocol"
)

// table returns the methods of the protocol that a server serves. To add a method, add a
// row.
func (s *Server) table() map[string]*method {
	rows := []*method{
		row(protocol.MethodInitialize, s.sessions.initialize),
		row(protocol.MethodDiscover, s.capabilities.discover),
		row(protocol.MethodListTools, s.tools.list),
		row(protocol.MethodCallTool, s.tools.call),
		row(protocol.MethodListResources, s.resources.list),
		row(protocol.MethodListResourceTemplates, s.resources.listTemplates),
		row(protocol.MethodReadResource, s.resources.read),
		row(protocol.MethodSubscribe, s.subscriptions.subscribe),
		row(protocol.MethodUnsubscribe, s.subscriptions.unsubscribe),
		row(protocol.MethodListPrompts, s.prompts.list),
		row(protocol.MethodGetPrompt, s.prompts.serve),
		row(protocol.MethodComplete, s.completions.complete).when(s.completions.offered),
		row(protocol.MethodSetLogLevel, setLogLevel),
		row(protocol.MethodListen, s.subscriptions.listen),
		anyRow(protocol.MethodGetTaskResult, aboutTask(&s.tasks, (*tasks.Tasks).Result)).when(s.tasks.offered),
		anyRow(protocol.MethodListTasks, aboutTask(&s.tasks, (*tasks.Tasks).List)),
		anyRow(protocol.MethodGetTask, aboutTask(&s.tasks, (*tasks.Tasks).Get)).when(s.tasks.offered),
		anyRow(protocol.MethodUpdateTask, aboutTask(&s.tasks, (*tasks.Tasks).Update)).when(s.tasks.offered),
		anyRow(protocol.MethodCancelTask, aboutTask(&s.tasks, (*tasks.Tasks).Cancel)).when(s.tasks.offered),
	}
	methods := make(map[string]*method, len(rows))
	for _, m := range rows {
		methods[m.Name] = m
	}
	// These differ in how they encode their result: what initialize says was mostly encoded before, and a task is
	// written in another way by each era.
	initialize, called := methods[protocol.MethodInitialize], methods[protocol.MethodCallTool]
	initialize.encode, called.encode = s.capabilities.encodeIntroduced(initialize.encode), encodeCalled(called.encode)
	called.mayLackMeta = true
	// Last, since a Route replaces the whole row, with what was changed here.
	s.route(methods)
	return methods
}

// route replaces rows of the table by those of Options.Route.
func (s *Server) route(methods map[string]*method) {
	for name, serve := range s.options.Route {
		if methods[name] == nil || slices.Contains(kept(), name) || serve == nil {
			panic(fmt.Sprintf("server: Route: %q: it needs a method of MCP that the server does not keep for itself, and a function", name))
		}
		methods[name] = routed(name, serve, s.rounds.check)
	}
}
