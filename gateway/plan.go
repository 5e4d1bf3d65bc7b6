package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A plan is what a file says.
type plan struct {
	names    *names.Plan
	entries  []entry          // what is offered, in the order of the file
	mistakes map[string]error // by the names of servers
	roots    []protocol.Root  // of servers without their own
	policy   *policy.Policy   // nil: the file has none
	show     showing
	named    string // the claim that has the names of users; "": none has
}

// An entry is a server of the file.
type entry struct {
	catalogue.Server
	called names.Server
	roots  []protocol.Root // what it gets that asks for roots outside of a call; nil: those of the gateway
	rule   life.Rule
	limit  limits.Rule
	modes  map[string]protocol.ToolMode // of tools, by the names that the server uses; "*": of all others
	share  string                       // who uses one connection: one of mcpjson.Shares
	child  bool                         // it is a process of this gateway
	single bool                         // all nodes of a cluster have one of it

	perUser *mcpjson.Server // at which each user logs in, as the file says; nil: users have no logins there
}

// logsIn reports whether users log in at the server by a page.
func (e *entry) logsIn() bool { return e.perUser != nil && e.perUser.Settings.Exchange == nil }

// given is what the options of a gateway say to every file.
type given struct {
	longest int // name
	roots   []protocol.Root
	isOwn   func(url string) bool // nil: it is not known
	share   string
	perUser bool  // users can log in at servers
	shared  bool  // pins are those of a cluster
	unread  error // why nobody knows which tools have changed; nil: it is known
}

// planOf reads a file whole. The error is about the block bowline at the top. A server with a mistake is as it was before, or is not
// offered. What is given holds if the file says nothing.
func planOf(file *mcpjson.File, o given, before map[string]entry) (*plan, error) {
	top, err := file.Gateway()
	if err != nil {
		return nil, &ConfigError{file.Path, []error{file.Check()}} // which has the others, too
	}
	if o.unread != nil && top.Pins == catalogue.Block && !o.shared { // each changed tool would count as new
		return nil, &ConfigError{file.Path, []error{fmt.Errorf("%s: bowline.pins: nobody knows which tools have changed: %w: mend that file, or remove it if all tools are to be taken as they are", file.Path, o.unread)}}
	}
	p := &plan{roots: o.roots, policy: policy.New(top.Policy, top.Login.Groups), named: top.Login.Name, show: top.Audit.Show}
	if top.Roots != nil {
		p.roots = rootsOf(top.Roots)
	}
	longest := cmp.Or(top.MaxName, o.longest)
	file.Reject(nil)
	wrong := p.read(file, top, o, before)
	p.name(longest, wrong)
	if len(wrong) > 0 { // those that are rejected are what they were before
		file.Reject(wrong)
		p.read(file, top, o, before)
		p.name(longest, wrong)
	}
	return p, nil
}

// read reads the servers, and returns what only a gateway finds wrong with one.
func (p *plan) read(file *mcpjson.File, top *mcpjson.Gateway, o given, before map[string]entry) (wrong map[string]string) {
	p.entries, p.mistakes, wrong = nil, make(map[string]error), make(map[string]string)
	for _, name := range file.Names() {
		s, err := file.Server(name)
		switch was, ok := before[name]; {
		case err == nil:
			p.entries = append(p.entries, entryOf(s, top, o))
			if why := p.entries[len(p.entries)-1].wrong(urlOf(s), o); why != "" {
				wrong[name] = why
			}
		case ok:
			p.entries = append(p.entries, was)
			fallthrough
		default:
			p.mistakes[name] = err
		}
	}
	return wrong
}

// wrong says what is wrong with a server for this gateway.
func (e *entry) wrong(url string, o given) string {
	switch {
	case url != "" && o.isOwn != nil && o.isOwn(url):
		return "it is this gateway itself, which is served at its url"
	case e.perUser != nil && !o.perUser:
		return `its login is "user", and this gateway lets no users log in`
	case e.single && e.share != shareAll:
		return `with "instances": "one" all users share one connection: give it "share": "all", too, if they may`
	default:
		return ""
	}
}

func entryOf(s *mcpjson.Server, top *mcpjson.Gateway, o given) entry {
	how := s.Hosting
	e := entry{
		Server: catalogue.Server{Name: s.Name, Identity: catalogue.IdentityOf(s.Transport), Filter: filtersOf(how), Rename: how.Rename, Describe: how.Describe, Pins: top.Pins, Shared: o.shared},
		called: names.Server{Name: s.Name, Prefix: cmp.Or(how.Prefix, top.Prefix)},
		rule:   life.RuleOf(how.Life, top.Life),
		limit:  limits.Rule{PerMinute: top.Rate.PerMinute, InFlight: top.Rate.InFlight, Concurrency: how.Concurrency, ToolRates: how.ToolRates},
		modes:  s.Settings.ToolModes,
		share:  cmp.Or(how.Share, o.share, shareAll),
		single: how.Instances == mcpjson.Instances()[1],
	}
	_, e.child = s.Transport.(*stdio.Command)
	if s.Settings.PerUser {
		e.perUser = s
		if e.share == shareAll {
			e.share = shareUser
		}
	}
	if how.Roots != nil {
		e.roots = rootsOf(how.Roots)
	}
	return e
}

// name gives the servers their names, and adds to wrong those that cannot have theirs.
func (p *plan) name(longest int, wrong map[string]string) {
	called := make([]names.Server, len(p.entries))
	for i, e := range p.entries {
		called[i] = e.called
	}
	var problems []names.Problem
	p.names, problems = names.Make(longest, called)
	for _, problem := range problems {
		wrong[problem.Server] = problem.Message
	}
}

func (p *plan) servers() (servers []catalogue.Server) {
	for _, e := range p.entries {
		servers = append(servers, e.Server)
	}
	return servers
}

// logsIn reports whether users log in by pages at one of the servers.
func (p *plan) logsIn() bool {
	return slices.ContainsFunc(p.entries, func(e entry) bool { return e.logsIn() })
}

// check returns the mistakes of all servers.
func (p *plan) check(file *mcpjson.File) error {
	if len(p.mistakes) == 0 {
		return nil
	}
	return &ConfigError{file.Path, []error{file.Check()}}
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

// A ConfigError has all mistakes of a file.
type ConfigError struct {
	Path     string
	Mistakes []error
}

// Error has one mistake in each line, each with the path of the file.
func (e *ConfigError) Error() string { return errors.Join(e.Mistakes...).Error() }

// Unwrap returns the mistakes.
func (e *ConfigError) Unwrap() []error { return e.Mistakes }
