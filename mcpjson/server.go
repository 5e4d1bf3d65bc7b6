package mcpjson

import (
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/tailscale/hujson"
)

// A Server is one entry of a File.
type Server struct {
	Name string // not empty, without control characters

	// Transport is a new *stdio.Command, *streamable.Client or *sse.Client. You may
	// change its fields before the first Open.
	Transport transport.Transport

	Timeout     time.Duration // of a request; 0: not set
	InitTimeout time.Duration // until the session is ready; 0: not set

	// Settings are the rest of the bowline block.
	Settings Settings

	// Notices are hints for the author of the file, one line each: which keys were
	// ignored, and which values may be mistakes.
	Notices []string

	settings [sha256.Size]byte // a hash of all that was read
}

// Same reports whether both servers would run in the same way: whether their names and
// all settings are equal after the replacement of variables, envFile and inputs.
func (s *Server) Same(as *Server) bool { return s.Name == as.Name && s.settings == as.settings }

// server reads an entry. The result is of use only if there are no findings.
func (r *reader) server(e *entry) *Server {
	r.findings, r.ignored = append(r.findings, e.findings...), append(r.ignored, e.ignored...)
	s := &Server{Name: e.name}
	if e.value.Kind() != '{' {
		return s
	}
	set := e.settings
	address := set["url"]
	if !set["httpUrl"].absent() {
		r.unused(set, "url")
		address = set["httpUrl"]
	}
	command := r.command(set)
	remote := r.remote(address, set)
	switch r.kind(e, address) {
	case overHTTP:
		s.Transport = remote
		r.unused(set, "args", "env", "envFile", "cwd")
	case overSSE:
		s.Transport = &sse.Client{URL: remote.URL, Header: remote.Header}
		r.unused(set, "args", "env", "envFile", "cwd")
	default:
		s.Transport = command
		r.unused(set, "headers")
	}
	r.timeouts(s, set)
	if s.Settings.Auth != nil && s.Transport == command {
		r.wrong(set["bowline"], "auth is for a server that is reached over HTTP")
	}
	s.settings = sha256.Sum256(r.read)
	return s
}

// A kind is how a server is reached.
type kind int

const (
	overPipes kind = iota
	overHTTP
	overSSE
)

// kind follows from command and url, and type must agree.
func (r *reader) kind(e *entry, address node) kind {
	command, remote := !e.settings["command"].absent(), !address.absent()
	inferred := overHTTP
	if command {
		inferred = overPipes
	}
	declared := r.declared(e.settings["type"], inferred)
	switch {
	case !command && !remote:
		r.wrong(e.called(), "it has neither a command nor a url: give it one of them")
	case command && remote:
		r.wrong(e.called(), "it has both a command and a url: remove one of them")
	case declared == overPipes && !command:
		r.wrong(e.settings["type"], "a server of this type has a command, not a url")
	case declared != overPipes && !remote:
		r.wrong(e.settings["type"], "a server of this type has a url, not a command")
	}
	return declared
}

// declared returns the kind that type stands for, or inferred if it says nothing we
// know.
func (r *reader) declared(n node, inferred kind) kind {
	written, expanded, ok := r.string(n)
	if !ok {
		return inferred
	}
	switch strings.ToLower(expanded) {
	case "stdio":
		return overPipes
	case "http", "streamable-http", "streamablehttp":
		return overHTTP
	case "sse":
		return overSSE
	default:
		r.wrong(n, "%s is none of stdio, http, streamable-http and sse", quote(written))
		return inferred
	}
}

// unused notes settings that mean nothing to a server of this kind.
func (r *reader) unused(set map[string]node, names ...string) {
	for _, name := range names {
		if n := set[name]; !n.absent() {
			r.ignored = append(r.ignored, n.path)
		}
	}
}

func (r *reader) command(set map[string]node) *stdio.Command {
	_, path, ok := r.string(set["command"])
	if ok && path == "" {
		r.wrong(set["command"], "the command is empty")
	}
	return &stdio.Command{
		Path: path,
		Args: r.strings(set["args"]),
		Env:  append(r.envFile(set["envFile"]), r.environment(set["env"])...),
		Dir:  r.path(set["cwd"]),
	}
}

func (r *reader) environment(n node) []string {
	var env []string
	for _, m := range r.members(n) {
		if m.name == "" || strings.ContainsAny(m.name, "=\x00") {
			r.wrong(m.called(), "this cannot be the name of an environment variable")
		}
		env = append(env, m.name+"="+r.scalar(m.node))
	}
	return env
}

// scalar reads a string, or a number or boolean as it is written.
func (r *reader) scalar(n node) string {
	switch n.value.Kind() {
	case '"':
		_, value, _ := r.string(n)
		return value
	case '0', 't', 'f':
		value := string(n.value.(hujson.Literal))
		r.record(n, value)
		return value
	default:
		r.expected(n, "a string, a number or a boolean")
		return ""
	}
}

// path reads a path, which begins at the project's folder.
func (r *reader) path(n node) string {
	_, path, ok := r.string(n)
	if !ok || path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.file.folder(), path)
}

func (r *reader) remote(n node, set map[string]node) *streamable.Client {
	_, address, ok := r.string(n)
	if ok && !isHTTP(address) {
		r.wrong(n, "expected a URL of http or https, with a host")
	}
	return &streamable.Client{URL: address, Header: r.headers(set["headers"])}
}

func isHTTP(address string) bool {
	parsed, err := url.Parse(address)
	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Hostname() != ""
}

func (r *reader) headers(n node) http.Header {
	if n.absent() {
		return nil
	}
	headers := http.Header{}
	for _, m := range r.members(n) {
		_, value, _ := r.string(m.node)
		switch {
		case !header.IsName(m.name):
			r.wrong(m.called(), "this cannot be the name of a header")
		case headers.Values(m.name) != nil:
			r.wrong(m.called(), "the header is repeated: case does not matter")
		case !header.IsValue(value):
			r.wrong(m.node, "a header cannot hold a line break or control character")
		default:
			headers.Set(m.name, value)
		}
	}
	return headers
}

func (r *reader) duration(n node) time.Duration {
	written, expanded, ok := r.string(n)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(expanded)
	if err != nil || d <= 0 {
		r.wrong(n, "%s is not a duration above zero, such as 30s or 2m", quote(written))
		return 0
	}
	return d
}

// milliseconds reads a timeout, of at most what a timer of JavaScript can hold.
// Some hosts count seconds, and nobody means 60 ms: that gives a notice.
func (r *reader) milliseconds(n node) time.Duration {
	if n.absent() {
		return 0
	}
	if n.value.Kind() != '0' {
		r.expected(n, "a number of milliseconds")
		return 0
	}
	count := n.value.(hujson.Literal).Float()
	d := time.Duration(min(count, math.MaxInt32) * float64(time.Millisecond))
	if d <= 0 || count > math.MaxInt32 {
		r.wrong(n, "expected a number of milliseconds above 0, of at most %d", math.MaxInt32)
		return 0
	}
	r.record(n, d.String())
	if d < time.Second {
		line, column := r.file.position(n.at)
		r.notices = append(r.notices, fmt.Sprintf("%s:%d:%d: %s: this is %v: the number is in milliseconds", r.file.Path, line, column, n.path, d))
	}
	return d
}
