package sessions

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// A copy is a further session with a server of the file, for a program that must not let all its users share one. It has a
// connection, a process and a login of its own. It lasts until somebody ends it: StopCopyIf, Stop or Restart of its server, or an Apply
// that changes or removes that. Nothing starts it again but StartCopy, so a program whose copy has to run without a call, for instance since it has
// subscribed to something, calls that after each of these. The names of copies are those of sessions: the supervisor, events and samples
// show them.

// StartCopy starts a copy of the session with a server, under another name than any server of a file has, unless there is one. It does not
// wait until the server is ready. It starts a copy of a server that does not run, too: may says whether the copy is wanted. While may
// is asked, nobody else starts or ends a session with this server; it must not call the Set but for Session and Copy.
func (s *Set) StartCopy(ctx context.Context, name, as string, may func() bool) error {
	defer s.acting.begin(name)()
	server, err := s.known(name)
	if err != nil || !may() {
		return err
	}
	if e := s.copiesOf(name)[as]; e != nil {
		if e.isRunning() {
			return nil
		}
		err = s.closeSessions(ctx, map[string]*entry{as: e})
	}
	return errors.Join(err, s.startCopy(context.WithoutCancel(ctx), server, as))
}

// startCopy starts a copy although its caller may give up meanwhile: whoever asks next finds it. The caller has the turn of the server, so
// Apply and Close, which want it, end what is started here.
func (s *Set) startCopy(ctx context.Context, server *mcpjson.Server, as string) error {
	o := s.options.Client
	merge(server, &o)
	switch {
	case s.options.EachCopy != nil:
		s.options.EachCopy(server, as, &o)
	case s.options.Each != nil:
		s.options.Each(server, &o)
	}
	e, err := s.open(ctx, server, as, o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copies[server.Name] == nil {
		s.copies[server.Name] = make(map[string]*entry)
	}
	s.copies[server.Name][as] = e
	return nil
}

// StopCopyIf ends a copy, as client.Session.Close does, if still returns true, which is asked as by StopIf. It does nothing if there is none. When it
// returns, the Set has no copy of that name, whatever the error says, so the name may be given to another one. It does not look at
// the file: a server that has left it may have copies until Apply has ended them.
func (s *Set) StopCopyIf(ctx context.Context, name, as string, still func() bool) error {
	defer s.acting.begin(name)()
	e := s.copiesOf(name)[as]
	if e == nil || !still() {
		return nil
	}
	return s.closeSessions(ctx, map[string]*entry{as: e})
}

// Copy returns a copy of the session with a server. Like Session, it is to be called whenever the copy is needed: one that has ended and was started
// again is another one, and one whose server has left the file is not there.
func (s *Set) Copy(name, as string) (*client.Session, bool) {
	s.mu.Lock()
	e := s.copies[name][as]
	s.mu.Unlock()
	if e == nil {
		return nil, false
	}
	return e.client.Session(as)
}
