package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// checkSurvive kills the server of a session, which must become ready again by itself and
// serve calls. It records if a server refuses that.
func checkSurvive(ctx context.Context, s *subject) (string, error) {
	survives := s.survivesOverStdio
	if s.Transport == HTTP {
		survives = s.survivesOverHTTP
	}
	err := survives(ctx)
	if refused := new(ProtocolError); errors.As(err, &refused) {
		return fmt.Sprintf("error %d", refused.Code), nil
	}
	return Held, err
}

func (s *subject) survivesOverStdio(ctx context.Context) error {
	started := make(chan int, 100) // more than come in the time of a check
	command := s.Server(s.revision)
	return s.withSession(ctx,
		&stdio.Command{Path: command[0], Args: command[1:], Started: func(pid int) { started <- pid }},
		func(session bowlineSession) error {
			server, err := os.FindProcess(<-started)
			if err != nil {
				return err
			}
			if err := server.Kill(); err != nil {
				return err
			}
			select {
			case <-started:
				return s.servesAgain(ctx, session)
			case <-ctx.Done():
				return errors.New("no server was started again")
			}
		})
}

// survivesOverHTTP starts the new server on the port of the killed one.
func (s *subject) survivesOverHTTP(ctx context.Context) error {
	command := s.Server(s.revision)
	first, err := s.serve(ctx, command)
	if err != nil {
		return err
	}
	defer first.close()
	return s.withSession(ctx, &streamable.Client{URL: first.url}, func(session bowlineSession) error {
		first.close()
		second, err := serve(ctx, command, first.port)
		if err != nil {
			return err
		}
		defer second.close()
		return s.servesAgain(ctx, session)
	})
}

// withSession opens a session that does not end with its first failure.
func (s *subject) withSession(ctx context.Context, t transport.Transport, use func(bowlineSession) error) error {
	session, err := client.New(bowlineInfo, client.Options{ProtocolVersion: s.revision}).Connect(ctx, observed(ctx, t))
	if err != nil {
		return err
	}
	patient := session.With(client.CallOptions{WaitForReady: true})
	err = use(bowlineSession{session: patient})
	return errors.Join(err, session.Close(ctx))
}

// servesAgain repeats the call while it was certainly not executed, because the session may
// notice the loss only through the call.
func (s *subject) servesAgain(ctx context.Context, session bowlineSession) error {
	result, err := session.CallTool(ctx, s.Echo)
	for conn.NotExecuted(err) && ctx.Err() == nil {
		result, err = session.CallTool(ctx, s.Echo)
	}
	if err != nil {
		return err
	}
	if result.IsError || strings.TrimSpace(result.Text) != s.Answer || session.Revision() != s.revision {
		return fmt.Errorf("after the restart the session uses %s and the answer is %+v", session.Revision(), *result)
	}
	return nil
}
