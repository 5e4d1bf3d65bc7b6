package embedded

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bowline-mcp/bowline/internal/private"
)

// Names in the folder.
const (
	lockName  = "lock"
	stateName = "server.json"
	dataName  = "nats" // the store of the server
)

// A state is what a server keeps in its folder, and what other processes of this machine read to
// connect to it.
type state struct {
	Name    string `json:"name"`    // of the server, by which other servers know its replicas
	Token   string `json:"token"`   // for clients
	Address string `json:"address"` // on the loopback interface; empty while it starts
	Process int    `json:"process"` // that runs the server, for people
}

// maxState bounds the size of the file.
const maxState = 4096

// errNoState says that there is no state yet.
var errNoState = errors.New("embedded: the server has no state yet")

// readState reads the state of a folder.
func readState(folder string) (state, error) {
	var s state
	path := filepath.Join(folder, stateName)
	file, err := private.Open(path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return s, errNoState
	}
	if err != nil {
		return s, fmt.Errorf("embedded: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxState+1))
	if err != nil {
		return s, fmt.Errorf("embedded: %w", err)
	}
	if len(text) > maxState || json.Unmarshal(text, &s) != nil || s.Name == "" || s.Token == "" {
		return s, fmt.Errorf("embedded: %s is damaged: remove it", path)
	}
	return s, nil
}

// writeState replaces the state of a folder. Who reads it sees the old one or the new one.
func writeState(folder string, s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, stateName)
	file, err := private.Open(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	_, err = private.Restrict(file)
	if err == nil {
		_, err = file.Write(text)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	private.SyncFolder(folder)
	return nil
}

// newState returns the state of a server that starts. It keeps the name and the token of the one
// before.
func newState(folder string) (state, error) {
	s, err := readState(folder)
	if errors.Is(err, errNoState) {
		s, err = state{Name: "bowline-" + rand.Text(), Token: rand.Text()}, nil
	}
	s.Address, s.Process = "", os.Getpid()
	return s, err
}

// lock takes the lock of a folder, which private.Unlock gives back; nil: another process has it, or
// another server of this one. Nobody else may replace what is in the folder, or in its parent.
func lock(folder, parent string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	for _, dir := range []string{folder, parent} {
		if err := private.CheckFolder(dir); err != nil {
			return nil, fmt.Errorf("embedded: folder %s: %w", dir, err)
		}
	}
	file, err := private.Lock(filepath.Join(folder, lockName))
	switch {
	case errors.Is(err, private.ErrLocked):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("embedded: %w", err)
	}
	return file, nil
}
