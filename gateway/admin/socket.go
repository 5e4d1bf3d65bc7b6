package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/bowline-mcp/bowline/internal/private"
)

// A SocketError means that there is no door at a path. Unless Running is set, nobody else has it.
type SocketError struct {
	Path    string
	Running bool // another gateway has the socket
	Err     error
}

// Error implements error.
func (e *SocketError) Error() string { return fmt.Sprintf("the admin socket %s: %v", e.Path, e.Err) }

// Unwrap implements errors.
func (e *SocketError) Unwrap() error { return e.Err }

// Listen makes the socket of a gateway: mode 0600, in a folder in which nobody else can write. It replaces the socket of a
// gateway that was killed, and fails with a [*SocketError] if one runs that has it. Close removes the socket.
func Listen(path string) (net.Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, &SocketError{path, errors.Is(err, errRunning), err}
	}
	return l, nil
}

const longestPath = 90 // macOS allows 103, and the socket is made under a name of 14

var errRunning = errors.New("another gateway runs with it: stop that one, or choose another path")

// listen makes the socket, and holds the lock beside it for as long as there is one.
func listen(path string) (net.Listener, error) {
	if len(path) > longestPath {
		return nil, fmt.Errorf("the path has %d bytes, and at most %d are possible: choose a shorter one", len(path), longestPath)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := private.CheckFolder(dir); err != nil {
		return nil, err
	}
	lock, err := private.Lock(path + ".lock")
	switch {
	case errors.Is(err, private.ErrLocked):
		return nil, errRunning
	case err != nil:
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		return nil, errors.Join(err, private.Unlock(lock))
	}
	return &socket{l, path, lock}, nil
}

// bind makes a socket in a folder that only the user can enter, and moves it when it has its mode: nobody can connect meanwhile.
func bind(path string) (*net.UnixListener, error) {
	hidden, err := os.MkdirTemp(filepath.Dir(path), ".b")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(hidden)
	made := filepath.Join(hidden, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// A socket is a listener whose path is removed in the end. The lock is last, so that the path is never that of another.
type socket struct {
	*net.UnixListener
	path string
	lock *os.File
}

// Close implements net.Listener.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	if removed := os.Remove(s.path); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return errors.Join(err, private.Unlock(s.lock))
}
