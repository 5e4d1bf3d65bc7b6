package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	reachTime = 20 * time.Second      // for one attempt, with the start of a gateway
	lookTime  = 20 * time.Millisecond // between two looks for a gateway that another program starts at the same time
)

// A Starter reaches the gateway of a file at its socket. If none runs, it starts one in the background, which outlives this process.
type Starter struct {
	Socket  string
	Log     string   // the file for the standard error of a gateway that is started
	Command []string // the program and its arguments; it prints a line to standard output when it can be reached, or when another one can
}

// Reach returns a link to the gateway. Of several processes that start one at the same time, each reaches the one that has the socket. It fails if
// somebody else could have put the socket there, who would be told what the host tells its servers.
func (s *Starter) Reach(ctx context.Context) (transport.Link, error) {
	if err := private.CheckFolder(filepath.Dir(s.Socket)); err != nil {
		return nil, fmt.Errorf("the socket %s: %w", s.Socket, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reachTime, fmt.Errorf("no gateway came at %s in %s: its log is %s", s.Socket, reachTime, s.Log))
	defer cancel()
	for {
		link, err := s.streams().Open(ctx)
		if !isNobodyThere(err) {
			return link, err
		}
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		if err := wait.Sleep(ctx, lookTime); err != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// isNobodyThere reports whether no gateway has the socket. A path that is too long is invalid, and the gateway that is started says so in words.
func isNobodyThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || network.IsRefused(err) || errors.Is(err, syscall.EINVAL)
}

func (s *Starter) streams() *stdio.Streams {
	return &stdio.Streams{Dial: func(ctx context.Context) (io.ReadCloser, io.WriteCloser, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", s.Socket)
		return c, c, err
	}}
}

// start starts a gateway, and waits until it can be reached. The error has what it has written, since nobody sees that otherwise.
func (s *Starter) start(ctx context.Context) error {
	log, began, err := openLog(s.Log)
	if err != nil {
		return fmt.Errorf("the log of the gateway: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Stderr = log
	cmd.SysProcAttr = detached()
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Command[0], err)
	}
	line := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(io.LimitReader(said, mostSaid)).ReadString('\n')
		line <- err
		_ = cmd.Wait() // a process that has ended is nobody's any more
	}()
	select {
	case err := <-line:
		if err == nil {
			return nil
		}
		return fmt.Errorf("it did not start: %s (its log is %s)", written(log, began), s.Log)
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), cmd.Process.Kill()) // it has not said that it works
	}
}
