package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// typeScriptSession drives client.mjs, with one request at a time.
type typeScriptSession struct {
	command  *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	asked    int
	revision string
}

// connectTypeScript connects with an installed SDK. The script must be in the
// current folder, as it is in tests. When the context ends, the process is
// killed.
func connectTypeScript(sdk npmPackage) Connect {
	return func(ctx context.Context, server Endpoint, revision string) (Session, error) {
		arguments := append([]string{"client.mjs", sdk.folder(), sdk.name, revision, server.URL}, server.Command...)
		command := exec.CommandContext(ctx, "node", arguments...)
		command.Stderr = os.Stderr
		in, err := command.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := command.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := command.Start(); err != nil {
			return nil, err
		}
		s := &typeScriptSession{command: command, in: in, out: bufio.NewReader(out)}
		var connected struct{ Revision string }
		if err := s.ask(ctx, "connect", nil, nil, &connected); err != nil {
			return nil, errors.Join(err, s.end())
		}
		s.revision = connected.Revision
		return s, nil
	}
}

func (s *typeScriptSession) Revision() string { return s.revision }

func (s *typeScriptSession) Ping(ctx context.Context) error {
	return s.ask(ctx, "ping", nil, nil, &struct{}{})
}

func (s *typeScriptSession) ToolsChanged(ctx context.Context) error {
	return s.ask(ctx, "changed", nil, nil, &struct{}{})
}

func (s *typeScriptSession) ListTools(ctx context.Context, cursor string) ([]string, string, error) {
	var page struct {
		Names []string
		Next  string
	}
	err := s.ask(ctx, "list", map[string]any{"cursor": cursor}, nil, &page)
	return page.Names, page.Next, err
}

func (s *typeScriptSession) CallTool(ctx context.Context, call Call) (*Result, error) {
	result := new(Result)
	err := s.ask(ctx, "call", map[string]any{
		"tool": call.Tool, "arguments": call.Arguments, "progress": call.OnProgress != nil,
	}, call.OnProgress, result)
	return result, err
}

func (s *typeScriptSession) Close(ctx context.Context) error {
	return errors.Join(s.ask(ctx, "close", nil, nil, &struct{}{}), s.end())
}

func (s *typeScriptSession) end() error {
	return errors.Join(s.in.Close(), s.command.Wait())
}

// ask sends one request and waits for its answer. When ctx ends, ask cancels
// the request. Once the script has answered, ask returns the cause of ctx.
func (s *typeScriptSession) ask(ctx context.Context, method string, params map[string]any, onProgress func(), into any) error {
	s.asked++
	id := s.asked
	question := map[string]any{"id": id, "method": method}
	for name, value := range params {
		question[name] = value
	}
	if err := s.write(question); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.write(map[string]any{"id": id, "method": "cancel"}) })
	defer stop()
	for {
		answer, err := s.read()
		switch {
		case err != nil:
			return fmt.Errorf("client.mjs: %s: %w", method, err)
		case answer.Progress:
			onProgress()
		case answer.Error != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case answer.Error != nil:
			return answer.Error
		default:
			return json.Unmarshal(answer.Result, into)
		}
	}
}

type typeScriptAnswer struct {
	Progress bool
	Result   json.RawMessage
	Error    *ProtocolError
}

func (s *typeScriptSession) read() (*typeScriptAnswer, error) {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	answer := new(typeScriptAnswer)
	return answer, json.Unmarshal(line, answer)
}

func (s *typeScriptSession) write(question map[string]any) error {
	line, err := json.Marshal(question)
	if err != nil {
		return err
	}
	_, err = s.in.Write(append(line, '\n'))
	return err
}
