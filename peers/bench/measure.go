package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth/tokens"
)

// A sample is one figure of one contestant in one round.
type sample struct {
	Point  string  `json:"point,omitempty"` // what was varied: 64 callers, for instance
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
}

// A measurement is one contestant in one row in one round. It runs in its own
// process, so that no measurement inherits the heap of another.
type measurement struct {
	contestant
	quick   bool
	samples []sample
	opened  []func() error
}

// The metrics that several rows have.
const (
	median     = "p50 in s"
	mean       = "mean in s"
	percentile = "p99 in s"
	permille   = "p99.9 in s"
	rate       = "calls per s"
	allocs     = "allocations"
	allocated  = "bytes allocated"
	processor  = "processor s"
	held       = "bytes held"
	goroutines = "goroutines"
)

func (m *measurement) add(point, metric string, value float64) {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 5, 64), 64)
	if err == nil { // five digits are more than a clock knows
		value = rounded
	}
	m.samples = append(m.samples, sample{point, metric, value})
}

// pick is what a quick run has less of.
func pick[T any](m *measurement, full, quick T) T {
	if m.quick {
		return quick
	}
	return full
}

// inMemory opens one session with a server in this process.
func (m *measurement) inMemory(ctx context.Context, o serving) (*session, error) {
	return m.kept(m.memory(m.revision, o)(ctx))
}

// overStdio opens a session with a child.
func (m *measurement) overStdio(ctx context.Context) (*session, error) {
	command, err := serverCommand("stdio", m.name)
	if err != nil {
		return nil, err
	}
	return m.kept(m.stdio(ctx, m.revision, command))
}

// overHTTP opens a session with a child that listens on loopback.
func (m *measurement) overHTTP(ctx context.Context) (*session, error) {
	_, s, err := m.childOverHTTP(ctx, hosting{})
	return s, err
}

// childOverHTTP also returns the URL of the child, for more sessions. The child ends when its
// standard input does, so it does not outlive this process.
func (m *measurement) childOverHTTP(ctx context.Context, of hosting) (url string, s *session, err error) {
	if m.program != nil {
		return m.overProgram(ctx)
	}
	command, err := serverCommand("http", m.name)
	if err != nil {
		return "", nil, err
	}
	folder, err := os.MkdirTemp("", "bench-*") // for what the child leaves behind
	if err != nil {
		return "", nil, err
	}
	var token string
	if m.asksToken {
		token, err = tokens.Add(tokensOfChild(folder), "ada", time.Time{})
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(folder))
	}
	alive, stdout, wait, err := start(command, append(of.env(), "TMPDIR="+folder)...)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(folder))
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("the server says no address: %w", err), wait(), os.RemoveAll(folder))
	}
	url = strings.TrimSpace(line)
	if m.asksToken {
		url = strings.Replace(url, "://", "://"+token+"@", 1)
	}
	s, err = m.kept(m.http(ctx, m.revision, url))
	m.opened = append(m.opened, func() error {
		alive.Close()
		return errors.Join(wait(), os.RemoveAll(folder))
	})
	return url, s, err
}

// tokensOfChild is the file of the tokens that a child asks for, in its folder of temporary files.
func tokensOfChild(folder string) string { return filepath.Join(folder, "tokens.json") }

// overProgram starts the program, and opens a session when it accepts connections.
func (m *measurement) overProgram(ctx context.Context) (url string, s *session, err error) {
	host, port, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	server, err := serverCommand("stdio", bowlineTyped)
	if err != nil {
		return "", nil, err
	}
	command := m.program(host, port, server)
	child := exec.Command(command[0], command[1:]...)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		return "", nil, err
	}
	end := func() error {
		err := child.Process.Kill() // its own child ends with its standard input
		child.Wait()                // which says that it was killed
		return err
	}
	url = fmt.Sprintf("http://%s/mcp", net.JoinHostPort(host, port))
	if err = reachable(ctx, net.JoinHostPort(host, port)); err == nil {
		s, err = m.kept(m.http(ctx, m.revision, url))
	}
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	m.opened = append(m.opened, end)
	return url, s, nil
}

func (m *measurement) kept(s *session, err error) (*session, error) {
	if err == nil {
		m.opened = append(m.opened, s.close)
	}
	return s, err
}

// close closes what was opened.
func (m *measurement) close() (err error) {
	for _, closeOne := range m.opened {
		err = errors.Join(err, closeOne())
	}
	return err
}

// serverCommand runs this very program as a server.
func serverCommand(wire, contestant string) ([]string, error) {
	program, err := os.Executable()
	return []string{program, "serve", wire, contestant}, err
}

// start runs a server as a child process.
func start(command []string, env ...string) (in io.WriteCloser, out io.Reader, wait func() error, err error) {
	child := exec.Command(command[0], command[1:]...)
	child.Stderr, child.Env = os.Stderr, append(os.Environ(), env...)
	if in, err = child.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = child.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return in, out, child.Wait, child.Start()
}

// timed is how long f takes.
func timed(f func() error) (time.Duration, error) {
	started := time.Now()
	err := f()
	return time.Since(started), err
}
