package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

const (
	lookInterval = time.Second     // between two looks whether the file has changed
	streamTime   = 5 * time.Minute // after which a stream ends, so that its client is checked again
	longestToken = 256             // bytes: ours has 51
)

// A File checks tokens by the file that has their hashes. It is safe for concurrent use, and needs no Close.
type File struct {
	path string
	now  func() time.Time

	known atomic.Pointer[tokens]

	looking sync.Mutex // held by who looks at the file
	looked  atomic.Int64
}

// tokens are those of one version of the file.
type tokens struct {
	by      map[[sha256.Size]byte]Token
	version fs.FileInfo
	settled bool  // it was read long after it was changed: clocks of file systems are coarse, so a second change may have the time of the first
	wrong   error // why the file cannot be read; nil: it can
}

// Open reads a file, or that to which a link leads. It fails if that has a mistake, or if others than this user and root can change it.
func Open(path string) (*File, error) {
	f := &File{path: path, now: time.Now}
	now := f.read()
	if now.wrong != nil {
		return nil, now.wrong
	}
	f.known.Store(now)
	f.looked.Store(f.now().UnixNano())
	return f, nil
}

func (f *File) read() *tokens {
	all, version, err := read(f.path)
	t := &tokens{by: make(map[[sha256.Size]byte]Token, len(all)), version: version, wrong: err}
	t.settled = err == nil && time.Since(version.ModTime()) > time.Second
	for _, token := range all {
		var hash [sha256.Size]byte
		_, _ = hex.Decode(hash[:], []byte(token.Hash)) // it was checked
		t.by[hash] = token
	}
	return t
}

// Check is for streamable.HandlerOptions.Check. A file that cannot be read any more lets nobody in, since nobody knows what was revoked: the response is 503, and
// the log says why, once.
func (f *File) Check(r *http.Request) (streamable.Caller, *streamable.Denial) {
	if len(r.Header["Authorization"]) > 1 {
		return nil, &streamable.Denial{Status: http.StatusBadRequest, Header: http.Header{"Www-Authenticate": {`Bearer error="invalid_request"`}}, Text: "the header Authorization is given more than once"}
	}
	token, given := bearer(r)
	if !given {
		return nil, denial("Bearer", "a token is needed: bowline token add makes one")
	}
	now, at := f.tokens(), f.now()
	if now.wrong != nil {
		return nil, &streamable.Denial{Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"5"}}, Text: "tokens cannot be checked now"}
	}
	found, ok := now.by[sumOf(token)] // of a hash, timing tells nothing
	if !ok || !found.Expires.IsZero() && !at.Before(found.Expires) {
		return nil, denial(`Bearer error="invalid_token"`, "the token is unknown, revoked or expired")
	}
	return &Principal{Name: found.Name, Expires: found.Expires, checked: at}, nil
}

func denial(challenge, text string) *streamable.Denial {
	return &streamable.Denial{Status: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {challenge}}, Text: text}
}

// sumOf returns the hash of a token that is not too long, without memory of its own.
func sumOf(token string) [sha256.Size]byte {
	var text [longestToken]byte
	return sha256.Sum256(text[:copy(text[:], token)])
}

// bearer returns the token of a request. It is taken from its only Authorization header, and from nowhere else: URLs are logged.
func bearer(r *http.Request) (token string, ok bool) {
	all := r.Header["Authorization"]
	if len(all) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(all[0], " ")
	token = strings.TrimLeft(token, " ")
	return token, found && strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= longestToken
}

// tokens returns those of the file as it was a second ago at the latest.
func (f *File) tokens() *tokens {
	at := f.now().UnixNano()
	// A clock that was set back looks at once: until it was where it had been, a revoked token would be valid.
	if passed := at - f.looked.Load(); (passed >= int64(lookInterval) || passed < 0) && f.looking.TryLock() {
		defer f.looking.Unlock()
		f.look()
		f.looked.Store(at)
	}
	return f.known.Load()
}

func (f *File) look() {
	before := f.known.Load()
	info, err := os.Stat(f.path)
	if err == nil && before.settled && private.IsUnchanged(info, before.version) {
		return
	}
	now := f.read()
	if now.wrong != nil && before.wrong == nil {
		slog.Error("bowline: nobody is let in until the file of tokens can be read", "error", now.wrong)
	}
	f.known.Store(now)
}

// A Principal is the user whose token came with a request. Handlers find it as transport.Origin.Principal.
type Principal struct {
	Name    string
	Expires time.Time // of the token; zero: never

	checked time.Time
}

// Identity implements streamable.Caller: sessions, tasks and questions belong to the name, also with another token.
func (p *Principal) Identity() string { return "token " + p.Name }

// Allow implements streamable.Caller. It denies nothing.
func (p *Principal) Allow(streamable.Operation) *streamable.Denial { return nil }

// Until returns when streams of this caller end: when the token expires, and after five minutes at the latest, since it may be revoked.
func (p *Principal) Until() time.Time {
	until := p.checked.Add(streamTime)
	if !p.Expires.IsZero() && p.Expires.Before(until) {
		return p.Expires
	}
	return until
}
