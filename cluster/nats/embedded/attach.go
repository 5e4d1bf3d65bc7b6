package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// attachWithin is how long Attach waits for a process that takes over the server.
const attachWithin = 3 * time.Second

// ErrNotRunning says that no process of this machine runs a server of the cluster.
var ErrNotRunning = errors.New("embedded: no process of this machine runs a server of the cluster")

// Attach returns an Engine for a cluster that runs on this machine, with or without Seeds. It needs
// Folder and Cluster only, and starts no server. If none runs, the error matches ErrNotRunning. The
// caller closes the Engine.
func Attach(ctx context.Context, o Options) (cluster.Engine, error) {
	o.Seeds, o.Self, o.Listen, o.Routes = nil, "", "", nil
	o, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("embedded: attach: %w", err)
	}
	folder, err := awaitRunning(ctx, o.Folder)
	if err != nil {
		return nil, err
	}
	s, err := readState(folder)
	if err != nil {
		return nil, err
	}
	e, err := nats.Connect(ctx, nats.Options{
		URLs: []string{"nats://127.0.0.1"}, Cluster: o.Cluster, Token: s.Token, Log: o.Log,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !runs(folder) { // whoever has its address by now must not be told the token
				return nil, ErrNotRunning
			}
			return dialFolder(ctx, folder)
		},
	})
	if errors.Is(err, cluster.ErrUnavailable) && folder != o.Folder {
		return nil, fmt.Errorf("embedded: attach: does the server of this machine wait for others? Its log says for which: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: attach: %w", blame(err, folder))
	}
	return e, nil
}

// blame says which process a server runs in that cannot be reached.
func blame(err error, folder string) error {
	s, unread := readState(folder)
	if unread != nil || s.Process == os.Getpid() || !errors.Is(err, cluster.ErrUnavailable) || !runs(folder) {
		return err
	}
	return fmt.Errorf("process %d of this machine runs the server of the cluster and does not answer; continue it, or end it: %w", s.Process, err)
}

// awaitRunning returns the folder of a server that runs.
func awaitRunning(ctx context.Context, folder string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, attachWithin, ErrNotRunning)
	defer cancel()
	for {
		server, err := running(folder)
		if server != "" || err != nil {
			return server, err
		}
		if wait.Sleep(ctx, lookEvery) != nil {
			return "", context.Cause(ctx)
		}
	}
}

// Running reports whether a process of this machine runs a server in a folder of Options.
func Running(folder string) bool {
	server, err := running(folder)
	return err == nil && server != ""
}

// running returns the folder of a server that runs now; "" for none.
func running(folder string) (server string, err error) {
	if runs(folder) {
		return folder, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("embedded: %w", err)
	}
	for _, entry := range entries {
		if server := filepath.Join(folder, entry.Name()); strings.HasPrefix(entry.Name(), serverPrefix) && runs(server) {
			return server, nil
		}
	}
	return "", nil
}

// runs reports whether a process has the lock of a folder.
func runs(folder string) bool {
	file, err := private.Lock(filepath.Join(folder, lockName))
	if err == nil {
		return private.Unlock(file) != nil
	}
	return errors.Is(err, private.ErrLocked)
}

// dialFolder connects to the server of a folder, which runs in another process.
func dialFolder(ctx context.Context, folder string) (net.Conn, error) {
	s, err := readState(folder)
	if err != nil {
		return nil, err
	}
	if s.Address == "" {
		return nil, errors.New("embedded: the server is starting")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", s.Address)
}
