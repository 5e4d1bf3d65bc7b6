// Package sessions keeps a session with every server of an mcp.json file.
//
//	set := sessions.New(info, sessions.Options{})
//	defer set.Close(ctx)
//	file, err := mcpjson.Load("mcp.json")
//	changes, err := set.Apply(ctx, file)
//
// Apply starts all servers of the file. Call it again with a changed file: it then starts,
// stops and restarts only what has changed. docs/guide/many.md shows a whole program, and
// docs/adr/0041-sessions-of-a-file.md lists the guarantees.
package sessions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Options configure a Set.
type Options struct {
	// Client are the options of every session. The bowline block and the timeout of
	// a server take precedence. If Supervisor is nil, the Set has one of its own; if
	// Conn.Wheel or Conn.Gate is nil, its sessions share one.
	Client client.Options

	// Each is called before a server is started, and may change its options and its
	// transport: to give a child a Stderr, for instance. Nil: nothing is changed.
	Each func(server *mcpjson.Server, o *client.Options)

	// Login returns how to log in to a server over HTTP, as its auth block says, if it
	// has one. It is asked before the server is started, unless there is an
	// Authorization header or Each has set an Authorizer. The Set closes what it returns
	// with the session, and a login wakes the session. Nil, and no error: the server is
	// called without a login. auth/authfile.Logins makes such a function. Default: there
	// are no logins, and a server with an auth block is not started.
	Login func(server *mcpjson.Server) (Login, error)
}

// A Login logs in to one server. *auth.Authorizer is one.
type Login interface {
	streamable.Authorizer
	OnLogin(f func())
	Close() error
}

// A Set keeps sessions with the servers of a file, by their names. It is safe for
// concurrent use. Close ends it.
type Set struct {
	info    protocol.Implementation
	options Options
	own     bool // the supervisor is the set's

	applying sync.Mutex // held by Apply and Close

	mu      sync.Mutex
	running map[string]*entry
	order   []string // the names of the file that was applied last
	closed  bool
}

// An entry is a server that was started. Each has a Client, since each has options
// of its own.
type entry struct {
	server *mcpjson.Server // as it was read
	client *client.Client
	login  Login // nil: none
}

// New returns a Set that introduces itself to servers as info. It starts nothing.
func New(info protocol.Implementation, o Options) *Set {
	s := &Set{info: info, options: o, running: make(map[string]*entry)}
	if o.Client.Supervisor == nil {
		s.options.Client.Supervisor, s.own = supervisor.New(supervisor.Options{Name: info.Name}), true
	}
	if o.Client.Conn.Wheel == nil {
		s.options.Client.Conn.Wheel = new(conn.Wheel)
	}
	if o.Client.Conn.Gate == nil {
		s.options.Client.Conn.Gate = new(conn.Gate)
	}
	return s
}

// Changes are the names of the servers with which Apply did something, in the order
// of the file.
type Changes struct {
	Started   []string
	Restarted []string
	Stopped   []string // in the order of their names
	Failed    []string // have mistakes, or could not be started
}

// Apply makes the Set run the servers of file that are not disabled, and no others.
// It waits for no server: see client.Client.Start. What is running is compared with
// the file, variables put in:
//
//   - a server that is new, or whose session has ended, is started;
//   - one whose entry differs in anything that counts is restarted: its session is
//     closed and a new one started, which Session then returns;
//   - one that is missing or disabled is stopped;
//   - all others are left alone, with their calls in flight.
//
// A server with mistakes is left as it is: running as before, or not at all. The
// error is about such servers, those that cannot be started, and sessions that
// have not ended in good order; it concerns no other server. It unwraps to an
// *mcpjson.Error for each server with mistakes.
//
// The context bounds how long sessions that are stopped may finish their calls, as
// in client.Session.Close. After Close, Apply fails with client.ErrClosed.
func (s *Set) Apply(ctx context.Context, file *mcpjson.File) (Changes, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.isClosed() {
		return Changes{}, client.ErrClosed
	}
	var changes Changes
	var problems []error
	var wanted []*mcpjson.Server
	names := file.Names()
	ending := s.others(names)
	changes.Stopped = slices.Sorted(maps.Keys(ending))
	for _, name := range names {
		server, err := file.Server(name)
		if err != nil {
			changes.Failed, problems = append(changes.Failed, name), append(problems, err)
			continue
		}
		switch e := s.entry(name); {
		case e == nil:
			changes.Started = append(changes.Started, name)
		case e.server.Same(server) && e.isRunning():
			continue
		case e.isRunning():
			changes.Restarted, ending[name] = append(changes.Restarted, name), e
		default:
			changes.Started, ending[name] = append(changes.Started, name), e
		}
		wanted = append(wanted, server)
	}
	problems = append(problems, s.end(ctx, ending))
	for _, server := range wanted {
		if err := s.start(ctx, server); err != nil {
			changes.fail(server.Name)
			problems = append(problems, fmt.Errorf("server %q: %w", server.Name, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = names
	return changes, errors.Join(problems...)
}

// fail moves a name to those that failed.
func (c *Changes) fail(name string) {
	is := func(other string) bool { return other == name }
	c.Started, c.Restarted = slices.DeleteFunc(c.Started, is), slices.DeleteFunc(c.Restarted, is)
	c.Failed = append(c.Failed, name)
}

// start starts a server. The one that is kept for comparison is never opened.
func (s *Set) start(ctx context.Context, server *mcpjson.Server) error {
	o := s.options.Client
	merge(server, &o)
	if s.options.Each != nil {
		s.options.Each(server, &o)
	}
	login, err := s.login(server)
	if err != nil {
		return err
	}
	e := &entry{server, client.New(s.info, o), login}
	session, err := e.client.Start(ctx, server.Name, server.Transport)
	if err != nil {
		return errors.Join(err, e.close(ctx))
	}
	if login != nil {
		login.OnLogin(session.Conn().Wake)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[server.Name] = e
	return nil
}

// login gives a server its login, and returns it, or nil if it has none.
func (s *Set) login(server *mcpjson.Server) (Login, error) {
	var header http.Header
	var has bool
	var give func(Login)
	switch t := server.Transport.(type) {
	case *streamable.Client:
		header, has, give = t.Header, t.Authorizer != nil, func(l Login) { t.Authorizer = l }
	case *sse.Client:
		header, has, give = t.Header, t.Authorizer != nil, func(l Login) { t.Authorizer = l }
	default:
		return nil, nil
	}
	switch {
	case has || header.Get("Authorization") != "":
		return nil, nil
	case s.options.Login == nil && server.Settings.Auth != nil:
		return nil, errors.New("sessions: it has an auth block, and Options.Login is not set")
	case s.options.Login == nil:
		return nil, nil
	}
	login, err := s.options.Login(server)
	if err == nil && login != nil {
		give(login)
	}
	return login, err
}

// close ends the session, and then what logs in for it.
func (e *entry) close(ctx context.Context) error {
	err := e.client.Close(ctx)
	if e.login != nil {
		err = errors.Join(err, e.login.Close())
	}
	return err
}

// end closes sessions, all at once, and takes them off the list.
func (s *Set) end(ctx context.Context, ending map[string]*entry) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	for name, e := range ending {
		all.Go(func() {
			if err := e.close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, fmt.Errorf("server %q: %w", name, err))
			}
		})
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range ending {
		delete(s.running, name)
	}
	return errors.Join(problems...)
}

// others returns what runs under none of these names.
func (s *Set) others(names []string) map[string]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := maps.Clone(s.running)
	maps.DeleteFunc(others, func(name string, _ *entry) bool { return slices.Contains(names, name) })
	return others
}

func (s *Set) entry(name string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[name]
}

func (s *Set) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// isRunning reports whether the session has not ended by itself.
func (e *entry) isRunning() bool {
	_, running := e.client.Session(e.server.Name)
	return running
}

// Session returns the session with the server of that name. After a restart it is
// another one: look it up when you need it.
func (s *Set) Session(name string) (*client.Session, bool) {
	if e := s.entry(name); e != nil {
		return e.client.Session(name)
	}
	return nil, false
}

// Sessions ranges over the sessions, in the order of the file.
func (s *Set) Sessions() iter.Seq[*client.Session] {
	return func(yield func(*client.Session) bool) {
		s.mu.Lock()
		names := slices.Clone(s.order)
		s.mu.Unlock()
		for _, name := range names {
			if session, found := s.Session(name); found && !yield(session) {
				return
			}
		}
	}
}

// Report describes the sessions and their supervisor.
func (s *Set) Report() supervisor.Report { return s.options.Client.Supervisor.Report() }

// RootsChanged tells every server that options.Client.Roots would answer something
// else now, as client.Client.RootsChanged does.
func (s *Set) RootsChanged(ctx context.Context) error {
	s.mu.Lock()
	running := maps.Clone(s.running)
	s.mu.Unlock()
	var problems []error
	for name, e := range running {
		if err := e.client.RootsChanged(ctx); err != nil {
			problems = append(problems, fmt.Errorf("server %q: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// Close ends all sessions, as client.Session.Close does, and the Set. The context
// bounds how long they may finish their calls.
func (s *Set) Close(ctx context.Context) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	s.closed = true
	running := maps.Clone(s.running)
	s.mu.Unlock()
	err := s.end(ctx, running)
	if s.own {
		err = errors.Join(err, s.options.Client.Supervisor.Stop(ctx))
	}
	return err
}

// merge puts what a file says over the options of the program.
func merge(server *mcpjson.Server, o *client.Options) {
	said := server.Settings
	set(&o.Calls.Timeout, server.Timeout)
	set(&o.Calls.MaxTimeout, said.MaxTimeout)
	set(&o.Conn.RequestTimeout, server.Timeout)
	set(&o.Conn.InitTimeout, server.InitTimeout)
	set(&o.Conn.BackoffMin, said.BackoffMin)
	set(&o.Conn.BackoffMax, said.BackoffMax)
	set(&o.Conn.Liveness, said.Liveness)
	setTo(&o.Calls.Retries, said.Retries)
	setTo(&o.Calls.WaitForReady, said.WaitForReady)
	setTo(&o.Calls.ProgressRestarts, said.ProgressRestarts)
	setTo(&o.TrustAnnotations, said.TrustAnnotations)
	if len(said.ToolModes) > 0 {
		modes := maps.Clone(o.ToolModes)
		if modes == nil {
			modes = make(map[string]protocol.ToolMode)
		}
		maps.Copy(modes, said.ToolModes)
		o.ToolModes = modes
	}
}

func set[T comparable](to *T, value T) {
	if value != *new(T) {
		*to = value
	}
}

func setTo[T any](to *T, value *T) {
	if value != nil {
		*to = *value
	}
}
