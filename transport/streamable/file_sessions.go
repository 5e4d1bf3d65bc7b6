package streamable

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/internal/seal"
)

// FileSessionsOptions configure a FileSessions. The zero value of each field means its
// default.
type FileSessionsOptions struct {
	// Key returns the keys that seal the records, of at least 32 random bytes each: the
	// first one seals, and any opens. FileSessions calls it whenever it needs a key, on
	// any goroutine, so keys can be replaced at any time. Default: a key that is made at
	// the first start and kept in the folder. Then whoever can read the folder, or a copy
	// of it, can read the records.
	Key func() [][]byte

	// MaxAge is how long after its last Save a session can be taken; default one hour. A
	// Handler saves each session several times within SessionIdle, so twice SessionIdle is
	// enough.
	MaxAge time.Duration

	// MaxBytes is how long all records may be together; default 64 MiB. The file has at
	// most twice as many bytes, and 2 MiB. A record that does not fit is not stored.
	MaxBytes int64

	// Log receives a warning when records cannot be stored, and when they can be again.
	// Default: slog.Default().
	Log *slog.Logger
}

// FileSessions is a SessionStore in a folder, for one process at a time. Sessions go on when
// the process is started again, also after kill -9. Close it after the Handler.
//
// What a handler saves, FileSessions writes in the background, usually within milliseconds.
// From then on it survives the end of the process. It is on the disk only after Close: if the
// machine itself stops, what its system had not written is lost, usually the last 30 s.
//
// Records are sealed with AES-256-GCM. Session ids are not stored, only their SHA-256. The
// folder has mode 0700 and its files 0600, except on Windows.
//
// If a record cannot be stored, for instance because the disk is full, its session works on,
// but ends with the process: an older record of it is deleted, so that a session never goes on
// with an old state. A record that is damaged, or that none of the keys opens, counts as none.
type FileSessions struct {
	dir  string
	o    FileSessionsOptions
	seal *seal.Sealer
	lock *os.File // locked while the folder is in use
	file *sessionLog

	wake    chan struct{} // capacity 1: something is pending
	closing chan struct{} // closed by Close
	done    chan struct{} // closed when the writer has ended
	end     sync.Once     // what Close does

	mu       sync.Mutex // never held while a file is read or written
	closed   bool
	owned    map[sessionName]struct{}       // the sessions that this process owns
	pending  map[sessionName]*pendingRecord // what is not written yet: at most one record of each session
	stored   map[sessionName]place          // changed only by the writer
	unopened int
	failed   uint64
	err      error // why the last record was not stored; nil: it was

	damaged int // when the file was opened
}

// A pendingRecord is a record that is not written yet. Nil fields: the session has ended.
type pendingRecord struct {
	at     time.Time
	record *SessionRecord
}

// A SessionFileError says that a folder or file of a FileSessions cannot be used.
type SessionFileError struct {
	Path string
	Err  error
}

func (e *SessionFileError) Error() string { return fmt.Sprintf("streamable: %s: %v", e.Path, e.Err) }

func (e *SessionFileError) Unwrap() error { return e.Err }

// ErrSessionsInUse says that another FileSessions uses the folder.
var ErrSessionsInUse = errors.New("another process keeps its sessions here: end it, or use another folder")

var errSessionsClosed = errors.New("streamable: the FileSessions is closed")

// OpenFileSessions opens the sessions in a folder, which it creates if there is none. Every
// session that an earlier process has stored there can be taken. The error is a
// *SessionFileError; it matches ErrSessionsInUse if another process uses the folder.
func OpenFileSessions(dir string, o FileSessionsOptions) (*FileSessions, error) {
	o.MaxAge = cmp.Or(max(o.MaxAge, 0), time.Hour)
	o.MaxBytes = cmp.Or(max(o.MaxBytes, 0), 64<<20)
	o.Log = cmp.Or(o.Log, slog.Default())
	s := &FileSessions{
		dir: dir, o: o, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
		owned: make(map[sessionName]struct{}), pending: make(map[sessionName]*pendingRecord),
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	if s.damaged = s.file.damaged; s.damaged > 0 || s.file.cut > 0 {
		o.Log.Warn("streamable: a file of sessions was damaged", "path", s.file.path, "places", s.file.damaged, "bytes cut off", s.file.cut)
	}
	go s.write()
	return s, nil
}

func (s *FileSessions) open() (err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return &SessionFileError{s.dir, err}
	}
	if err := private.CheckFolder(s.dir); err != nil {
		return &SessionFileError{s.dir, err}
	}
	if err := s.lockFolder(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = private.Unlock(s.lock)
		}
	}()
	if s.o.Key == nil {
		key, err := keyOfFolder(s.dir)
		if err != nil {
			return err
		}
		s.o.Key = func() [][]byte { return [][]byte{key} }
	}
	s.seal = seal.New("sessions", s.o.Key)
	// A key that is not usable is reported now, and not when the first session is lost.
	if _, err := s.seal.Seal(nil, nil); err != nil {
		return &SessionFileError{s.dir, err}
	}
	s.file, s.stored, err = openSessionLog(s.dir, s.o.MaxBytes)
	return err
}

// lockFolder keeps other processes out, until this one ends, in whatever way.
func (s *FileSessions) lockFolder() error {
	path := filepath.Join(s.dir, "lock")
	file, err := private.Lock(path)
	if errors.Is(err, private.ErrLocked) {
		return &SessionFileError{s.dir, ErrSessionsInUse}
	}
	if err != nil {
		return &SessionFileError{path, err}
	}
	s.lock = file
	return nil
}

// keyOfFolder returns the key in a folder, and makes one if there is none.
// It does not replace a damaged one: that may be restored, and with it the sessions.
func keyOfFolder(dir string) ([]byte, error) {
	path := filepath.Join(dir, "key")
	file, err := private.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(dir, path)
	}
	if err != nil {
		return nil, &SessionFileError{path, err}
	}
	defer file.Close()
	_, err = private.Restrict(file)
	text, readErr := io.ReadAll(io.LimitReader(file, 2*seal.MinSecret+1))
	key, decodeErr := hex.DecodeString(string(text))
	if err := errors.Join(err, readErr); err != nil {
		return nil, &SessionFileError{path, err}
	}
	if decodeErr != nil || len(key) != seal.MinSecret {
		return nil, &SessionFileError{path, errors.New("it is no key: restore it, or remove it, and with it the stored sessions")}
	}
	return key, nil
}

// makeKey makes a key and its file, which is whole if it exists.
func makeKey(dir, path string) ([]byte, error) {
	key := make([]byte, seal.MinSecret)
	_, _ = rand.Read(key) // which never fails
	err := os.Remove(path + ".new")
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = writeWhole(path+".new", hex.EncodeToString(key))
	}
	if err == nil {
		// Only a whole file gets the name: half a key would lock out all sessions.
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, &SessionFileError{path, err}
	}
	private.SyncFolder(dir)
	return key, nil
}

func writeWhole(path, text string) error {
	file, err := private.Open(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Sync(), file.Close())
}

// Bind implements SessionStore. No other node can take a session, so lost is not called.
func (s *FileSessions) Bind(func(session string)) {}

// Save implements SessionStore. It does not wait for the file.
func (s *FileSessions) Save(session string, r SessionRecord) {
	name := sessionName(sha256.Sum256([]byte(session)))
	s.mu.Lock()
	if !s.closed {
		s.owned[name] = struct{}{}
		// It replaces one that was not written yet: only the newest is true.
		s.pending[name] = &pendingRecord{time.Now(), &r}
	}
	s.mu.Unlock()
	s.wakeWriter()
}

func (s *FileSessions) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default: // the writer will look anyway
	}
}

// Free implements SessionStore.
func (s *FileSessions) Free(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owned, sha256.Sum256([]byte(session)))
}

// Forget implements SessionStore. It does not wait for the file.
// After Free it does nothing, because somebody else may have taken the session.
func (s *FileSessions) Forget(session string) {
	name := sessionName(sha256.Sum256([]byte(session)))
	s.mu.Lock()
	if _, owned := s.owned[name]; owned && !s.closed {
		delete(s.owned, name)
		s.pending[name] = &pendingRecord{}
	}
	s.mu.Unlock()
	s.wakeWriter()
}

// Take implements SessionStore. It reads the file, which may take as long as the disk.
func (s *FileSessions) Take(ctx context.Context, session, identity string) (SessionRecord, error) {
	name := sessionName(sha256.Sum256([]byte(session)))
	// It reads without mu. If a Save came meanwhile, the version is not the newest, and it reads again.
	for ctx.Err() == nil {
		r, found, err := s.find(name)
		if err != nil {
			return SessionRecord{}, err
		}
		if r.Identity != identity {
			return SessionRecord{}, ErrNoSession
		}
		if same, err := s.own(name, found); same {
			return r, err
		}
	}
	return SessionRecord{}, context.Cause(ctx)
}

// A version is a record of a session: the one that is pending, or the one in the file.
type version struct {
	pending *pendingRecord
	place   place
}

// current returns the newest version of a session. The caller holds the mutex.
func (s *FileSessions) current(name sessionName) (version, bool) {
	if p := s.pending[name]; p != nil {
		return version{pending: p}, p.record != nil
	}
	at, stored := s.stored[name]
	return version{place: at}, stored && !s.expired(at)
}

func (s *FileSessions) expired(p place) bool {
	return time.Since(time.UnixMilli(p.atMilli)) >= s.o.MaxAge
}

// find returns the newest record of a session.
func (s *FileSessions) find(name sessionName) (SessionRecord, version, error) {
	s.file.reading.RLock() // so that the place stays what it is
	defer s.file.reading.RUnlock()
	s.mu.Lock()
	found, any := s.current(name)
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return SessionRecord{}, found, errSessionsClosed
	case !any:
		return SessionRecord{}, found, ErrNoSession
	case found.pending != nil:
		return *found.pending.record, found, nil
	}
	f, err := s.file.read(found.place)
	if err != nil && !errors.Is(err, errDamaged) {
		return SessionRecord{}, found, &SessionFileError{s.file.path, err}
	}
	var r SessionRecord
	if err == nil {
		r, err = s.unseal(name, f)
	}
	// A record that nobody can open counts as none: the client begins another session.
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unopened++
		return SessionRecord{}, found, ErrNoSession
	}
	return r, found, nil
}

// unseal returns the record of a frame.
func (s *FileSessions) unseal(name sessionName, f sessionFrame) (SessionRecord, error) {
	if f.name != name {
		return SessionRecord{}, errDamaged
	}
	plain, err := s.seal.Open(f.sealed(), f.about())
	if err != nil {
		return SessionRecord{}, err
	}
	return decodeSessionRecord(plain)
}

// own makes this process the owner of a session, if the version is still the newest one.
func (s *FileSessions) own(name sessionName, found version) (same bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A record that was replaced since find has read it must not be given out.
	if now, any := s.current(name); now != found || !any {
		return false, nil
	}
	if _, owned := s.owned[name]; owned {
		return true, &OwnedError{}
	}
	s.owned[name] = struct{}{}
	return true, nil
}

// A FileSessionsReport says how a FileSessions does.
type FileSessionsReport struct {
	Stored   int    // the sessions in the file
	Bytes    int64  // the length of their records
	Pending  int    // the records that are not written yet
	Damaged  int    // the damaged places that were found when the file was opened
	Unopened int    // how many records none of the keys has opened
	Failed   uint64 // how many records could not be stored
	Err      error  // why the last record could not be stored; nil if it was
}

// Report returns how the FileSessions does now.
func (s *FileSessions) Report() FileSessionsReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := FileSessionsReport{Stored: len(s.stored), Pending: len(s.pending), Damaged: s.damaged, Unopened: s.unopened, Failed: s.failed, Err: s.err}
	for _, p := range s.stored {
		r.Bytes += int64(p.size)
	}
	return r
}
