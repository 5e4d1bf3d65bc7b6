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
//
// # Goroutines
//
// A Set has none of its own. Apply and Close stop sessions in parallel, and return when all have
// ended; AwaitReady waits for all at once.
package sessions

import (
	"cmp"
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
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Options configure a Set.
type Options struct {
	// Client are the options of every session. The bowline block and the timeout of a
	// server take precedence. If Supervisor is nil, the Set creates one. If Conn.Wheel
	// or Conn.Gate is nil, the Set creates one for all its sessions.
	Client client.Options

	// Each is called before a server is started. It may change the options and the
	// transport, for instance to set the Stderr of a child. Nil: nothing is changed.
	Each func(server *mcpjson.Server, o *client.Options)

	// EachCopy is called before a copy of a server is started, in place of Each; see
	// Set.StartCopy. It may change the same things, for this copy alone: it gets a server
	// and options of its own. Nil: Each is called.
	EachCopy func(server *mcpjson.Server, as string, o *client.Options)

	// Login returns the login for a server over HTTP, according to its auth block, if
	// it has one. The Set calls it before it starts the server, unless the server has
	// an Authorization header or Each has set an Authorizer. The Set closes the Login
	// together with the session, and wakes the session after each login. If Login
	// returns nil and no error, the server is used without a login.
	// auth/authfile.Logins returns such a function. Default: no logins; a server with
	// an auth block is not started.
	Login func(server *mcpjson.Server) (Login, error)

	// LoginCopy returns the login for a copy of a server, in place of Login; see Set.StartCopy. Nil: Login is called.
	LoginCopy func(server *mcpjson.Server, as string) (Login, error)

	// OnDemand reports whether Apply leaves a server that does not run to Start, as if it had been stopped. It must not call the Set.
	// Nil: Apply starts all.
	OnDemand func(server *mcpjson.Server) bool
}

// A Login logs in to one server. *auth.Authorizer is one.
type Login interface {
	transport.Authorizer
	OnLogin(f func())
	Close() error
}

// A Set maintains one session for each server of a file. It is safe for concurrent use.
// End it with Close.
type Set struct {
	info    protocol.Implementation
	options Options
	own     bool // the supervisor is the set's

	applying sync.Mutex // held by Apply and Close
	acting   turns      // of what starts or ends one session. Who has one waits for no other, but Apply and Close
	// A File bears one reader at a time, while servers have their turns at the same time.
	reading sync.Mutex // held while a server of a file is read, which may ask a user

	mu      sync.Mutex
	file    *mcpjson.File              // that was applied last
	held    map[string]*mcpjson.Server // those that are kept ended, with their settings then
	running map[string]*entry
	copies  map[string]map[string]*entry // by server, and by what they are called
	order   []string                     // the names of the file that was applied last
	closed  bool
}

// An entry is a server that was started. Each has a Client, since each has options
// of its own.
type entry struct {
	server *mcpjson.Server // as it was read
	name   string          // of the session. That of a copy is not the one of the server
	client *client.Client
	login  Login // nil: none
}

// New returns a Set that introduces itself to servers as info. It starts nothing.
func New(info protocol.Implementation, o Options) *Set {
	s := &Set{info: info, options: o, file: new(mcpjson.File), held: make(map[string]*mcpjson.Server), running: make(map[string]*entry), copies: make(map[string]map[string]*entry)}
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

// start starts a server. The one that is kept for comparison is never opened.
func (s *Set) start(ctx context.Context, server *mcpjson.Server) error {
	s.mu.Lock()
	delete(s.held, server.Name)
	s.mu.Unlock()
	o := s.options.Client
	merge(server, &o)
	if s.options.Each != nil {
		s.options.Each(server, &o)
	}
	e, err := s.open(ctx, server, server.Name, o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[server.Name] = e
	return nil
}

// open starts a session under a name. If it cannot be started, nothing is left of it: its
// login is closed as well.
func (s *Set) open(ctx context.Context, server *mcpjson.Server, name string, o client.Options) (*entry, error) {
	give := s.options.Login
	if name != server.Name && s.options.LoginCopy != nil {
		give = func(server *mcpjson.Server) (Login, error) { return s.options.LoginCopy(server, name) }
	}
	login, err := logIn(server, give)
	if err != nil {
		return nil, err
	}
	e := &entry{server, name, client.New(s.info, o), login}
	session, err := e.client.Start(ctx, name, server.Transport)
	if err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	if login != nil {
		login.OnLogin(session.Wake)
	}
	return e, nil
}

// logIn gives a server its login, which from makes, and returns it, or nil if it has none.
func logIn(server *mcpjson.Server, from func(*mcpjson.Server) (Login, error)) (Login, error) {
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
	case from == nil && server.Settings.Auth != nil:
		return nil, errors.New("sessions: it has an auth block, and Options.Login is not set")
	case from == nil:
		return nil, nil
	}
	login, err := from(server)
	give(login) // nil is no Authorizer, and after an error nobody opens the transport
	return login, err
}

// close closes the session, and then its login.
func (e *entry) close(ctx context.Context) error {
	err := e.client.Close(ctx)
	if e.login != nil {
		err = errors.Join(err, e.login.Close())
	}
	return err
}

// closeSessions closes sessions at the same time, and removes them from the list.
func (s *Set) closeSessions(ctx context.Context, ending map[string]*entry) error {
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
	for _, e := range ending {
		s.forget(e)
	}
	return errors.Join(problems...)
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

// forget removes what has ended, whether its end was in order or not: a session that
// does not end in time is cut. The caller holds mu.
func (s *Set) forget(e *entry) {
	server := e.server.Name
	if e.name == server {
		delete(s.running, server)
		return
	}
	if delete(s.copies[server], e.name); len(s.copies[server]) == 0 {
		delete(s.copies, server)
	}
}

// isRunning reports whether the session has not ended by itself.
func (e *entry) isRunning() bool {
	_, running := e.client.Session(e.name)
	return running
}

// Session returns the session of the server with the given name. A restarted server has
// a new session, so call Session whenever you need it.
func (s *Set) Session(name string) (*client.Session, bool) {
	if e := s.entry(name); e != nil {
		return e.client.Session(name)
	}
	return nil, false
}

// Sessions ranges over the sessions, in the order of the file. Copies are not among them.
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

// AwaitReady waits until every server of the file is ready, for all at the same time: it
// takes no longer than ctx. Its error joins one for each server that is not ready then, with
// its name; the others can be used. It does not wait for servers that Apply starts meanwhile.
func (s *Set) AwaitReady(ctx context.Context) error {
	var problems []error
	for session := range s.Sessions() { // one after the other: they all become ready meanwhile
		if err := session.AwaitReady(ctx); err != nil {
			problems = append(problems, fmt.Errorf("server %q: %w", session.Name(), err))
		}
	}
	return errors.Join(problems...)
}

// Report describes the sessions and their supervisor.
func (s *Set) Report() supervisor.Report { return s.options.Client.Supervisor.Report() }

// RootsChanged tells every server that Options.Client.Roots now returns other roots, as
// client.Client.RootsChanged does.
func (s *Set) RootsChanged(ctx context.Context) error {
	running := s.all()
	var problems []error
	for name, e := range running {
		if err := e.client.RootsChanged(ctx); err != nil {
			problems = append(problems, fmt.Errorf("server %q: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// copiesOf returns those of a server, by their names. The map is the caller's. Whoever has
// the turn of the server may act on them: nobody else adds or removes one meanwhile.
func (s *Set) copiesOf(name string) map[string]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*entry)
	maps.Copy(all, s.copies[name])
	return all
}

// all returns the sessions and the copies, by their names.
func (s *Set) all() map[string]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.running)
	for _, copies := range s.copies {
		maps.Copy(all, copies)
	}
	return all
}

// Close ends the Set and all its sessions, as client.Session.Close does. The context
// limits how long they may finish their calls.
func (s *Set) Close(ctx context.Context) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, name := range s.acting.names() { // what is being started is ended as well
		defer s.acting.begin(name)()
	}
	err := s.closeSessions(ctx, s.all())
	if s.own {
		err = errors.Join(err, s.options.Client.Supervisor.Stop(ctx))
	}
	return err
}

// merge replaces options of the program by the settings of a file.
func merge(server *mcpjson.Server, o *client.Options) {
	settings := server.Settings
	o.Calls.Timeout = cmp.Or(server.Timeout, o.Calls.Timeout)
	o.Calls.MaxTimeout = cmp.Or(settings.MaxTimeout, o.Calls.MaxTimeout)
	o.Conn.RequestTimeout = cmp.Or(server.Timeout, o.Conn.RequestTimeout)
	o.Conn.InitTimeout = cmp.Or(server.InitTimeout, o.Conn.InitTimeout)
	o.Conn.BackoffMin = cmp.Or(settings.BackoffMin, o.Conn.BackoffMin)
	o.Conn.BackoffMax = cmp.Or(settings.BackoffMax, o.Conn.BackoffMax)
	o.Conn.Liveness = cmp.Or(settings.Liveness, o.Conn.Liveness)
	o.Calls.Retries = given(settings.Retries, o.Calls.Retries)
	o.Calls.WaitForReady = given(settings.WaitForReady, o.Calls.WaitForReady)
	o.Calls.ProgressRestarts = given(settings.ProgressRestarts, o.Calls.ProgressRestarts)
	o.TrustAnnotations = given(settings.TrustAnnotations, o.TrustAnnotations)
	if len(settings.ToolModes) > 0 {
		modes := maps.Clone(o.ToolModes)
		if modes == nil {
			modes = make(map[string]protocol.ToolMode)
		}
		maps.Copy(modes, settings.ToolModes)
		o.ToolModes = modes
	}
}

// given returns what a file gives, or otherwise what the program does.
func given[T any](value *T, otherwise T) T {
	if value != nil {
		return *value
	}
	return otherwise
}
