package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	firstList = "first list"
	firstCall = "first call"
)

// starting measures how long it takes from the start of a program to its list of tools, and to the answer of a call after that.
func starting(ctx context.Context, m *measurement) (err error) {
	open := (*measurement).overHTTP
	switch {
	case m.http == nil:
		open = (*measurement).overStdio
	case m.program == nil:
		u, err := prepareUp(ctx)
		if err != nil {
			return err
		}
		defer os.RemoveAll(u.folder)
		open = u.open
		if _, _, err := firstOf(ctx, m, open); err != nil { // from now on it knows what its server offers
			return err
		}
	}
	var lists, calls []time.Duration
	for range pick(m, 15, 1) {
		list, call, err := firstOf(ctx, m, open)
		if err != nil {
			return err
		}
		lists, calls = append(lists, list), append(calls, call)
	}
	m.add(firstList, median, middleOf(lists))
	m.add(firstCall, median, middleOf(calls))
	return nil
}

// firstOf starts a program, and ends it.
func firstOf(ctx context.Context, m *measurement, open func(*measurement, context.Context) (*session, error)) (list, call time.Duration, err error) {
	one := &measurement{contestant: m.contestant}
	defer func() { err = errors.Join(err, one.close()) }()
	began := time.Now()
	s, err := open(one, ctx)
	if err != nil {
		return 0, 0, err
	}
	if _, err := s.list(ctx); err != nil {
		return 0, 0, err
	}
	list = time.Since(began)
	err = s.echo(echoText)(ctx)
	return list, time.Since(began), err
}

// An upProgram is `bowline up` with one server, which it starts on demand.
type upProgram struct{ folder, program, file string }

// prepareUp builds it.
func prepareUp(ctx context.Context) (*upProgram, error) {
	folder, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return nil, err
	}
	u := &upProgram{folder, filepath.Join(folder, "bowline"), filepath.Join(folder, "mcp.json")}
	if err := u.prepare(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return u, nil
}

func (u *upProgram) prepare(ctx context.Context) error {
	text, err := hostedText(hosting{servers: 1}, map[string]any{"start": "demand", "catalogue": "catalogue.json"})
	if err != nil {
		return err
	}
	if err := os.WriteFile(u.file, text, 0o600); err != nil {
		return err
	}
	return run(exec.CommandContext(ctx, "go", "build", "-o", u.program, "github.com/bowline-mcp/bowline/cmd/bowline"))
}

// open runs it until the measurement ends.
func (u *upProgram) open(m *measurement, ctx context.Context) (*session, error) {
	child := exec.CommandContext(ctx, u.program, "up", u.file, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	child.Env = append(os.Environ(), "XDG_STATE_HOME="+u.folder, "XDG_RUNTIME_DIR="+u.folder, "XDG_CONFIG_HOME="+u.folder)
	said, err := child.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	end := func() error {
		err := child.Process.Signal(os.Interrupt)
		_, failed := io.Copy(io.Discard, said)
		return errors.Join(err, failed, child.Wait())
	}
	url, err := addressIn(said)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	s, err := m.kept(m.http(ctx, m.revision, url))
	m.opened = append(m.opened, end)
	return s, err
}

// addressIn reads what the program says up to its address.
func addressIn(said io.Reader) (url string, err error) {
	lines := bufio.NewScanner(said)
	var before []string
	for lines.Scan() {
		if _, url, found := strings.Cut(lines.Text(), "bowline: serving "); found {
			return url, nil
		}
		before = append(before, lines.Text())
	}
	return "", fmt.Errorf("bowline up says no address: %s", strings.Join(before, "; "))
}
