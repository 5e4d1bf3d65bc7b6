package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

// MaxFile is the size of the largest file that is read or saved.
const MaxFile = 128 << 20

const maxServers = 10_000 // in a file

// A FileError means that the catalogue could not be read or saved. The gateway works without its file: it then knows
// nothing of servers that are away when it starts.
type FileError struct {
	Path string
	Op   string // "read" or "save"
	Err  error
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("catalogue: %s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap implements errors.
func (e *FileError) Unwrap() error { return e.Err }

// Open returns the Catalogue of a file, which need not exist. The file must belong to this user, and other users must not
// be able to replace it: what it says is shown to models as a server's own words. If it cannot be used, the Catalogue
// begins empty, and the error is a [*FileError]; the file stays as it is until Replace.
func Open(path string) (*Catalogue, error) {
	c := New()
	c.path = path
	s, err := read(path)
	if err != nil {
		c.unread = &FileError{path, "read", err}
		return c, c.unread
	}
	c.now.Store(s)
	return c, nil
}

// Unread returns why the file could not be read, or nil, also after Replace. What people approved is in it.
func (c *Catalogue) Unread() error {
	c.saving.Lock()
	defer c.saving.Unlock()
	return c.unread
}

// Replace lets Save replace a file that could not be read.
func (c *Catalogue) Replace() {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.unread = nil
}

// document is the file.
type document struct {
	Version int              `json:"v"`
	Servers []serverDocument `json:"servers"`
}

type serverDocument struct {
	Name     string                `json:"name"`
	Identity string                `json:"identity"`
	Lists    map[Kind]listDocument `json:"lists"`
	Pins     map[string]pin        `json:"pins,omitzero"`
	Shared   bool                  `json:"shared,omitzero"` // the pins are those of a cluster
}

type listDocument struct {
	At      time.Time         `json:"at"`
	TTL     time.Duration     `json:"ttl,omitzero"`
	Private bool              `json:"private,omitzero"`
	Entries []json.RawMessage `json:"entries"`
}

func read(path string) (*Snapshot, error) {
	if err := private.CheckFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	file, err := private.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Empty(), nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("it is above the limit of %d bytes", MaxFile)
	}
	return decodeFile(text)
}

// decodeFile checks what it reads as if servers had said it.
func decodeFile(text []byte) (*Snapshot, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	switch {
	case d.Version != 1:
		return nil, fmt.Errorf("it has version %d, and only 1 is known", d.Version)
	case len(d.Servers) > maxServers:
		return nil, fmt.Errorf("it has %d servers, more than %d", len(d.Servers), maxServers)
	}
	empty := Empty()
	servers, seen := make([]server, 0, len(d.Servers)), map[string]bool{}
	for _, of := range d.Servers {
		if of.Name == "" || seen[of.Name] {
			return nil, fmt.Errorf("the server %q is there twice, or has no name", of.Name)
		}
		seen[of.Name] = true
		one := server{Server: Server{Name: of.Name, Identity: of.Identity, Shared: of.Shared}, pins: of.Pins}
		for _, kind := range Kinds() {
			if list, ok := of.Lists[kind]; ok {
				one = one.with(empty.plan, kind, List{Entries: list.Entries, At: list.At, TTL: max(list.TTL, 0), Private: list.Private})
			}
		}
		servers = append(servers, one)
	}
	return build(empty.plan, servers), nil
}

// Save writes what has changed since the last Save to the file: whole or not at all, with mode 0600. A Catalogue
// without a file does nothing, nor does one whose file could not be read. It fails with a [*FileError].
func (c *Catalogue) Save() error {
	c.saving.Lock()
	defer c.saving.Unlock()
	s := c.Snapshot()
	if c.path == "" || s == c.saved || c.unread != nil {
		return nil
	}
	if err := write(c.path, s); err != nil {
		return &FileError{c.path, "save", err}
	}
	c.saved = s
	return nil
}

func encodeFile(s *Snapshot) ([]byte, error) {
	all := slices.Concat(s.servers, s.gone)
	d := document{Version: 1, Servers: make([]serverDocument, len(all))}
	for i, one := range all {
		d.Servers[i] = serverDocument{one.Name, one.Identity, map[Kind]listDocument{}, one.pins, one.Shared}
		for kind, list := range one.lists {
			d.Servers[i].Lists[kind] = listDocument{list.at, list.ttl, list.private, rawOf(list.entries)}
		}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // entries stay as they are
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	if text.Len() > MaxFile {
		return nil, fmt.Errorf("it would have %d bytes, above the limit of %d", text.Len(), MaxFile)
	}
	return text.Bytes(), nil
}

func write(path string, s *Snapshot) error {
	dir := filepath.Dir(path)
	if err := private.CheckFolder(dir); err != nil {
		return err
	}
	text, err := encodeFile(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return private.Replace(path, text)
}
