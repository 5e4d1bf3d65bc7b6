package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// A subject is one peer in one revision, with a session that its checks share.
type subject struct {
	Peer
	revision string
	programs *Programs
	session  Session
	server   running
}

// checks run in this order, each with a timeout. A check returns what it has observed, or
// an error.
var checks = []struct {
	feature Feature
	run     func(context.Context, *subject) (string, error)
}{
	{Speaks, checkSpeaks},
	{Ping, checkPing},
	{List, checkList},
	{Pages, checkPages},
	{Success, checkSuccess},
	{Failure, checkFailure},
	{Unknown, checkUnknown},
	{Progress, checkProgress},
	{Cancel, checkCancel},
	{Announce, checkAnnounce},
	{Close, checkClose},
	{Survive, checkSurvive},
}

// open opens a session with a new server.
func (s *subject) open(ctx context.Context, command []string) (Session, running, error) {
	server, endpoint, err := s.run(ctx, s.programs, command)
	if err != nil {
		return nil, nil, err
	}
	session, err := s.Connect(ctx, endpoint, s.revision)
	if err != nil {
		server.close()
		return nil, nil, err
	}
	return session, server, nil
}

// openSuite opens a session with a server of this suite, for features that the other servers
// do not have.
func (s *subject) openSuite(ctx context.Context) (Session, running, error) {
	if s.Suite == nil {
		return s.open(ctx, s.Server(s.revision))
	}
	return s.open(ctx, s.Suite(s.revision))
}

// checkSpeaks also checks that both sides agree on the newest revision of a peer that does
// not support the requested one.
func checkSpeaks(_ context.Context, s *subject) (string, error) {
	switch got := s.session.Revision(); {
	case got == s.revision:
		return Held, nil
	case got == protocol.LatestLegacy && s.Legacy && protocol.IsModern(s.revision):
		return got + " instead", nil
	default:
		return "", fmt.Errorf("the session uses %s", got)
	}
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
	session, server, err := s.openSuite(ctx)
	if err != nil {
		return "", err
	}
	defer server.close()
	seen, err := s.listsPages(ctx, session)
	return seen, errors.Join(err, session.Close(ctx))
}

// listsPages allows for peers whose servers end a list with an empty page.
func (s *subject) listsPages(ctx context.Context, session Session) (string, error) {
	names, pages, err := listAll(ctx, session)
	if err != nil {
		return "", err
	}
	switch full := (len(names) + pageSize - 1) / pageSize; {
	case pages == full && pages > 1:
		return Held, s.listed(names)
	case pages == full+1 && s.Role == ServerRole:
		return "an empty page at last", s.listed(names)
	default:
		return "", fmt.Errorf("%d tools came on %d pages", len(names), pages)
	}
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

// listed checks that each tool that the checks call is listed once.
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

// checkUnknown accepts different errors of other servers. A server of Bowline must return
// the error of the specification's example.
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

// checkProgress expects a report before the answer from Bowline's client. Other clients handle
// reports beside answers, and may do so later.
func checkProgress(ctx context.Context, s *subject) (string, error) {
	reported := make(chan struct{}, 100) // more than there are steps
	call := s.Slow
	call.OnProgress = func() { reported <- struct{}{} }
	result, err := s.session.CallTool(ctx, call)
	if err != nil {
		return "", err
	}
	if result.IsError || s.Role == ServerRole && len(reported) == 0 {
		return "", fmt.Errorf("progress was reported %d times before the answer %+v", len(reported), *result)
	}
	select {
	case <-reported:
		return Held, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no progress was reported: %w", context.Cause(ctx))
	}
}

// checkCancel cancels a call at its first progress, and waits for the log line of the server.
func checkCancel(ctx context.Context, s *subject) (string, error) {
	calling, leave := context.WithCancel(ctx)
	defer leave()
	call := s.Endless
	call.OnProgress = leave
	if result, err := s.session.CallTool(calling, call); err == nil {
		return "", fmt.Errorf("the cancelled call got the answer %+v", *result)
	} else if calling.Err() == nil || ctx.Err() != nil {
		return "", err
	}
	if _, err := s.server.await(ctx, cancelledPattern); err != nil {
		return "", err
	}
	return checkSuccess(ctx, s) // the session lives on
}

// checkAnnounce makes a server add a tool, and waits for the notification.
func checkAnnounce(ctx context.Context, s *subject) (string, error) {
	session, server, err := s.openSuite(ctx)
	if err != nil {
		return "", err
	}
	defer server.close()
	err = growsFor(ctx, session)
	return Held, errors.Join(err, session.Close(ctx))
}

// growsFor adds the tool again until the client is notified. Over HTTP, a legacy client may
// open its stream for notifications late, and earlier notifications are lost.
func growsFor(ctx context.Context, session Session) error {
	for {
		if _, err := session.CallTool(ctx, Call{Tool: "grow", Arguments: map[string]any{}}); err != nil {
			return err
		}
		hearing, stop := context.WithTimeout(ctx, time.Second)
		err := awaitTool(hearing, session, grown)
		stop()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// awaitTool waits for a change after which a tool is listed: there may be others
// before.
func awaitTool(ctx context.Context, session Session, tool string) error {
	for {
		if err := session.ToolsChanged(ctx); err != nil {
			return fmt.Errorf("no notification came: %w", err)
		}
		names, _, err := listAll(ctx, session)
		if err != nil || slices.Contains(names, tool) {
			return err
		}
	}
}

// checkClose records how another server ends. A server of Bowline must end by itself.
func checkClose(ctx context.Context, s *subject) (string, error) {
	err := s.session.Close(ctx)
	how, unheard := s.server.end(ctx)
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

// TestLacksNameFeatures checks that each reason for a missing feature names a feature that exists.
func TestLacksNameFeatures(t *testing.T) {
	peers, err := Peers(new(Programs))
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range peers {
		for _, lack := range peer.Lacks {
			if lack.Why == "" || lack.Feature != "" && !slices.Contains(features(), lack.Feature) {
				t.Errorf("%s, the %s, lacks %q because of %q", peer.Name, peer.Role, lack.Feature, lack.Why)
			}
		}
	}
}

func features() []Feature {
	var all []Feature
	for _, check := range checks {
		all = append(all, check.feature)
	}
	return all
}
