package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A subject is one peer in one revision, with a session that its checks share.
type subject struct {
	Peer
	revision string
	programs *Programs
	session  Session
	server   *watch
}

// checks are run in this order, each with a hang guard. One returns what it has
// observed, or why that is wrong.
var checks = []struct {
	feature Feature
	run     func(context.Context, *subject) (string, error)
}{
	{Initialize, checkInitialize},
	{Ping, checkPing},
	{List, checkList},
	{Pages, checkPages},
	{Success, checkSuccess},
	{Failure, checkFailure},
	{Unknown, checkUnknown},
	{Progress, checkProgress},
	{Cancel, checkCancel},
	{Close, checkClose},
	{Survive, checkSurvive},
}

// open starts a server under a witness.
func (s *subject) open(ctx context.Context, server []string) (Session, *watch, error) {
	w, err := newWatch()
	if err != nil {
		return nil, nil, err
	}
	session, err := s.Connect(ctx, w.command(s.programs.Peer, server), s.revision)
	if err != nil {
		w.close()
		return nil, nil, err
	}
	return session, w, nil
}

func checkInitialize(_ context.Context, s *subject) (string, error) {
	if got := s.session.Revision(); got != s.revision {
		return "", fmt.Errorf("%s is spoken", got)
	}
	return Held, nil
}

func checkPing(ctx context.Context, s *subject) (string, error) {
	return Held, s.session.Ping(ctx)
}

func checkList(ctx context.Context, s *subject) (string, error) {
	names, _, err := listAll(ctx, s.session)
	if err != nil {
		return "", err
	}
	return Held, s.listed(names)
}

func checkPages(ctx context.Context, s *subject) (string, error) {
	if s.Paged == nil {
		return s.listsPages(ctx, s.session)
	}
	session, server, err := s.open(ctx, s.Paged(s.revision))
	if err != nil {
		return "", err
	}
	defer server.close()
	seen, err := s.listsPages(ctx, session)
	return seen, errors.Join(err, session.Close(ctx))
}

func (s *subject) listsPages(ctx context.Context, session Session) (string, error) {
	names, pages, err := listAll(ctx, session)
	if err != nil {
		return "", err
	}
	if want := (len(names) + pageSize - 1) / pageSize; pages != want || pages < 2 {
		return "", fmt.Errorf("%d tools came on %d pages", len(names), pages)
	}
	return Held, s.listed(names)
}

func listAll(ctx context.Context, session Session) (names []string, pages int, err error) {
	for cursor := ""; ; pages++ {
		page, next, err := session.ListTools(ctx, cursor)
		if err != nil {
			return nil, 0, err
		}
		names = append(names, page...)
		if next == "" {
			return names, pages + 1, nil
		}
		cursor = next
	}
}

// listed wants the tools that the checks call, each once.
func (s *subject) listed(names []string) error {
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		return fmt.Errorf("a tool is listed twice: %q", names)
	}
	for _, call := range []Call{s.Echo, s.Fail, s.Slow} {
		if call.Tool != "" && !slices.Contains(names, call.Tool) {
			return fmt.Errorf("%q is not in %q", call.Tool, names)
		}
	}
	return nil
}

func checkSuccess(ctx context.Context, s *subject) (string, error) {
	result, err := s.session.CallTool(ctx, s.Echo)
	if err != nil {
		return "", err
	}
	if result.IsError || strings.TrimSpace(result.Text) != s.Answer {
		return "", fmt.Errorf("the answer is %+v", *result)
	}
	return Held, nil
}

func checkFailure(ctx context.Context, s *subject) (string, error) {
	result, err := s.session.CallTool(ctx, s.Fail)
	if err != nil {
		return "", err
	}
	if !result.IsError || result.Text == "" {
		return "", fmt.Errorf("the answer is %+v", *result)
	}
	return Held, nil
}

// checkUnknown observes: the specification's example is an error, and servers
// differ. Ours has to give it.
func checkUnknown(ctx context.Context, s *subject) (string, error) {
	result, err := s.session.CallTool(ctx, Call{Tool: "no-such-tool", Arguments: map[string]any{}})
	refused := new(ProtocolError)
	switch {
	case errors.As(err, &refused) && (s.Role == ServerRole || refused.Code == -32602):
		return fmt.Sprintf("error %d", refused.Code), nil
	case err == nil && result.IsError && s.Role == ServerRole:
		return "isError", nil
	case err == nil:
		return "", fmt.Errorf("the answer is %+v", *result)
	default:
		return "", err
	}
}

func checkProgress(ctx context.Context, s *subject) (string, error) {
	told := make(chan struct{}, 100) // more than there are steps
	call := s.Slow
	call.OnProgress = func() { told <- struct{}{} }
	result, err := s.session.CallTool(ctx, call)
	if err != nil {
		return "", err
	}
	if result.IsError || len(told) == 0 {
		return "", fmt.Errorf("progress was told %d times before the answer %+v", len(told), *result)
	}
	return Held, nil
}

// checkCancel leaves a call at its first progress, and hears of it from the server.
func checkCancel(ctx context.Context, s *subject) (string, error) {
	calling, leave := context.WithCancel(ctx)
	defer leave()
	call := s.Endless
	call.OnProgress = leave
	if result, err := s.session.CallTool(calling, call); err == nil {
		return "", fmt.Errorf("the call that was left got the answer %+v", *result)
	} else if calling.Err() == nil || ctx.Err() != nil {
		return "", err
	}
	if _, err := s.server.await(ctx, givenUp); err != nil {
		return "", err
	}
	return Held, s.session.Ping(ctx)
}

// checkClose observes how a server of theirs ends; ours has to end by itself.
func checkClose(ctx context.Context, s *subject) (string, error) {
	err := s.session.Close(ctx)
	how, unheard := s.server.await(ctx, ended)
	switch {
	case unheard != nil:
		return "", errors.Join(err, unheard)
	case how == "exit status 0" && err == nil:
		return Held, nil
	case s.Role == ServerRole && err == nil:
		return how, nil
	default:
		return "", errors.Join(err, errors.New(how))
	}
}

// checkSurvive kills the server of a session, which has to get ready again by
// itself and to serve calls.
func checkSurvive(ctx context.Context, s *subject) (string, error) {
	started := make(chan int, 100) // more than come in the time of a check
	command := s.Server(s.revision)
	session, err := client.New(ourself, client.Options{ProtocolVersion: s.revision}).Connect(ctx,
		&stdio.Command{Path: command[0], Args: command[1:], Started: func(pid int) { started <- pid }})
	if err != nil {
		return "", err
	}
	err = s.survives(ctx, session, started)
	return Held, errors.Join(err, session.Close(ctx))
}

func (s *subject) survives(ctx context.Context, session *client.Session, started <-chan int) error {
	server, err := os.FindProcess(<-started)
	if err != nil {
		return err
	}
	if err := server.Kill(); err != nil {
		return err
	}
	select {
	case <-started:
	case <-ctx.Done():
		return errors.New("no server was started again")
	}
	again := bowlineSession{session.With(client.CallOptions{WaitForReady: true})}
	result, err := again.CallTool(ctx, s.Echo)
	if err != nil {
		return err
	}
	if result.IsError || strings.TrimSpace(result.Text) != s.Answer || again.Revision() != s.revision {
		return fmt.Errorf("after the restart %s is spoken and the answer is %+v", again.Revision(), *result)
	}
	return nil
}

var revisions = protocol.LegacyVersions()
