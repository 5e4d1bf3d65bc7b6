package gateway

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// A plan is what a file says.
type plan struct {
	names   *names.Plan
	servers []catalogue.Server
	roots   map[string][]protocol.Root // of servers that have their own
	all     []protocol.Root            // of the others

	called   []names.Server
	wrong    map[string]string // by the names of servers
	mistakes []error
}

// planOf reads a file whole, and collects all its mistakes. The length of names and the roots are those that hold if the file says nothing.
func planOf(file *mcpjson.File, longest int, roots []protocol.Root) (*plan, error) {
	p := &plan{roots: make(map[string][]protocol.Root), wrong: make(map[string]string), all: roots}
	top, err := file.Gateway()
	if err != nil {
		return nil, &ConfigError{file.Path, []error{file.Check()}} // which has the others, too
	}
	if top.Roots != nil {
		p.all = rootsOf(top.Roots)
	}
	for _, name := range file.Names() {
		p.add(file, name, top.Prefix)
	}
	return p.checked(file, cmp.Or(top.MaxName, longest))
}

// checked makes the names, and returns the plan, or all mistakes.
func (p *plan) checked(file *mcpjson.File, longest int) (*plan, error) {
	var problems []names.Problem
	p.names, problems = names.Make(longest, p.called)
	for _, problem := range problems {
		p.wrong[problem.Server] = problem.Message
	}
	if err := file.Reject(p.wrong); err != nil {
		p.mistakes = append(p.mistakes, err)
	}
	if len(p.mistakes) > 0 {
		return nil, &ConfigError{file.Path, p.mistakes}
	}
	return p, nil
}

// add reads one server.
func (p *plan) add(file *mcpjson.File, name string, prefix *string) {
	s, err := file.Server(name)
	if err != nil {
		p.mistakes = append(p.mistakes, err)
		return
	}
	how := s.Hosting
	p.servers = append(p.servers, catalogue.Server{Name: name, Identity: catalogue.IdentityOf(s.Transport), Filter: filtersOf(how)})
	p.called = append(p.called, names.Server{Name: name, Prefix: cmp.Or(how.Prefix, prefix)})
	if how.Roots != nil {
		p.roots[name] = rootsOf(how.Roots)
	}
	if how.Start == "demand" || how.IdleStop > 0 {
		p.wrong[name] = "start and idleStop are not supported by this version: remove them"
	}
}

func filtersOf(how mcpjson.Hosting) map[catalogue.Kind]catalogue.Filter {
	return map[catalogue.Kind]catalogue.Filter{
		catalogue.Tools: catalogue.Filter(how.Tools), catalogue.Prompts: catalogue.Filter(how.Prompts),
		catalogue.Resources: catalogue.Filter(how.Resources), catalogue.Templates: catalogue.Filter(how.Resources),
	}
}

func rootsOf(uris []string) []protocol.Root {
	roots := make([]protocol.Root, len(uris))
	for i, uri := range uris {
		roots[i].URI = uri
	}
	return roots
}

// A ConfigError has all mistakes of a file that keep a gateway from serving it.
type ConfigError struct {
	Path     string
	Mistakes []error
}

// Error has one mistake in each line.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("gateway: %s: %v", e.Path, errors.Join(e.Mistakes...))
}

// Unwrap returns the mistakes.
func (e *ConfigError) Unwrap() []error { return e.Mistakes }
