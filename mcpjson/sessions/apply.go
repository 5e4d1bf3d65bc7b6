package sessions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Changes lists, by name, the servers for which Apply changed something, in the order of
// the file.
type Changes struct {
	Started   []string
	Restarted []string
	Stopped   []string // in the order of their names
	Failed    []string // whose entry has a mistake; if only its command does not exist, a server is in Started, and its session in backoff
}

// Apply makes the Set run exactly those servers of the file that are not disabled. It
// does not wait for the servers; see client.Client.Start. Apply compares the running
// servers with the file, after the replacement of variables:
//
//   - A server that is new, or whose session has ended, is started.
//   - A server whose settings have changed is restarted: Apply closes its session and
//     starts a new one, which Session then returns.
//   - A server that is missing or disabled is stopped.
//   - A copy of a server that was changed or stopped ends.
//   - A server that Stop has ended stays ended, unless its settings have changed.
//   - All other servers are left alone, with their calls in flight.
//
// Apply does not change the state of a server with mistakes: if it was running, it
// continues. The error joins one error for each server that has mistakes (an
// *mcpjson.Error), could not be started, or did not end properly. Such a server does not
// affect the others.
//
// The context limits how long stopped sessions may finish their calls, as in
// client.Session.Close. After Close, Apply fails with client.ErrClosed.
func (s *Set) Apply(ctx context.Context, file *mcpjson.File) (Changes, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.isClosed() {
		return Changes{}, client.ErrClosed
	}
	names := file.Names()
	// From here on, Start and Stop act on what this file has. What has begun before has its turn first, so nothing that the file does
	// not have is left running.
	before := s.remember(file, names)
	d := &difference{ending: make(map[string]*entry)}
	for _, name := range before {
		if !slices.Contains(names, name) {
			defer s.acting.begin(name)()
			d.remove(name, s.entry(name), s.copiesOf(name))
		}
	}
	for _, name := range names {
		if done := s.acting.begin(name); s.compare(d, name) {
			defer done()
		} else {
			done()
		}
	}
	problems := append(d.problems, s.closeSessions(ctx, d.ending))
	for _, server := range d.wanted {
		if err := s.start(ctx, server); err != nil {
			d.fail(server.Name)
			problems = append(problems, fmt.Errorf("server %q: %w", server.Name, err))
		}
	}
	return d.Changes, errors.Join(problems...)
}

// A difference is what Apply has to do, and what it has done. It keeps the turns of those servers only about which something is to be done:
// while others take their time to end, these can be started, stopped and used.
type difference struct {
	Changes
	ending   map[string]*entry
	wanted   []*mcpjson.Server
	problems []error
}

// remove notes that the file does not have a server any more. Nil: it does not run, because it was stopped or had a mistake, and nothing
// is to be done.
func (d *difference) remove(name string, e *entry, copies map[string]*entry) {
	maps.Copy(d.ending, copies)
	if e != nil {
		d.Stopped, d.ending[name] = append(d.Stopped, name), e
	}
}

// compare reports whether something is to be done about a server of the file, and notes what. It has the turn of that server, so what it sees
// stays so until the turn is over. A server with a mistake is neither started nor ended.
func (s *Set) compare(d *difference, name string) bool {
	server, err := s.read(name)
	if err != nil {
		d.Failed, d.problems = append(d.Failed, name), append(d.problems, err)
		return false
	}
	outdated := s.outdated(server)
	maps.Copy(d.ending, outdated)
	switch e := s.entry(name); {
	case e == nil && s.isHeld(server), e != nil && e.server.Same(server) && e.isRunning():
		return len(outdated) > 0
	case e == nil:
		d.Started = append(d.Started, name)
	case e.isRunning():
		d.Restarted, d.ending[name] = append(d.Restarted, name), e
	default:
		d.Started, d.ending[name] = append(d.Started, name), e
	}
	d.wanted = append(d.wanted, server)
	return true
}

// outdated returns the copies of a server that run with other settings, and those that have ended by themselves. Who needs one of these starts
// it again: they are nobody's but the program's.
func (s *Set) outdated(server *mcpjson.Server) map[string]*entry {
	all := s.copiesOf(server.Name)
	maps.DeleteFunc(all, func(_ string, e *entry) bool { return e.server.Same(server) && e.isRunning() })
	return all
}

// isHeld reports whether a server is not to be started: it was stopped, and has the same settings as then, or it starts on demand.
func (s *Set) isHeld(server *mcpjson.Server) bool {
	s.mu.Lock()
	held := s.held[server.Name]
	s.mu.Unlock()
	if held != nil && held.Same(server) {
		return true
	}
	if s.options.OnDemand == nil || !s.options.OnDemand(server) {
		return false
	}
	s.hold(server)
	return true
}

// hold keeps a server ended until somebody starts it. Its settings are kept, too: with others, Apply asks anew whether it is to be
// started.
func (s *Set) hold(server *mcpjson.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[server.Name] = server
}

// remember keeps the file for Start and Restart, and returns the names of those that run or that somebody acts on, sorted. What the file does not have is not held any
// more: if it comes back, it is new.
func (s *Set) remember(file *mcpjson.File, names []string) (before []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.acting.names() // before running: one that is being started is in either
	s.file, s.order = file, names
	maps.DeleteFunc(s.held, func(name string, _ *mcpjson.Server) bool { return !slices.Contains(names, name) })
	before = slices.AppendSeq(before, maps.Keys(s.running))
	before = slices.AppendSeq(before, maps.Keys(s.copies))
	slices.Sort(before)
	return slices.Compact(before)
}

// read returns a new value for a server of the file: the transport of an old one may have been given a login. A File does not bear two readers.
func (s *Set) read(name string) (*mcpjson.Server, error) {
	s.mu.Lock()
	file := s.file
	s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	return file.Server(name)
}

// fail moves a name to those that failed.
func (c *Changes) fail(name string) {
	is := func(other string) bool { return other == name }
	c.Started, c.Restarted = slices.DeleteFunc(c.Started, is), slices.DeleteFunc(c.Restarted, is)
	c.Failed = append(c.Failed, name)
}
