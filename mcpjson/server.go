package mcpjson

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
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

	// Hosting is what of the bowline block only a gateway uses.
	Hosting Hosting

	// Notices are hints for the author of the file, one line each: which keys were
	// ignored, and which values may be mistakes.
	Notices []string

	settings [sha256.Size]byte // a hash of all that was read, with the name
}

// Same reports whether both servers would run in the same way: whether their names and
// all settings but Hosting are equal after the replacement of variables, envFile and inputs.
func (s *Server) Same(as *Server) bool { return s.settings == as.settings }

// readServer reads an entry. Use the result only if there are no findings.
func readServer(v *values, e *entry) *Server {
	v.findings, v.ignored = append(v.findings, e.wrong()...), append(v.ignored, e.ignored...)
	s := &Server{Name: e.name}
	if e.value.Kind() != '{' {
		return s
	}
	set := e.settings
	address := readAddressOfHost(v, set)
	used := readKind(v, e, address)
	if used == overPipes {
		s.Transport = readCommand(v, set)
		ignoreUnused(v, set, "headers")
	} else {
		remote := readRemote(v, address, set)
		s.Transport = remote
		if used == overSSE {
			s.Transport = &sse.Client{URL: remote.URL, Header: remote.Header}
		}
		ignoreUnused(v, set, "args", "env", "envFile", "cwd")
	}
	readSettings(v, s, set)
	readHiddenTools(v, &s.Hosting.Tools, set)
	if s.Settings.Auth != nil && !set["command"].absent() {
		v.wrong(set["bowline"], "auth is for a server that is reached over HTTP")
	}
	s.settings = sha256.Sum256(v.read)
	return s
}

// readAddressOfHost returns the address by the name that the host has for it. Gemini CLI and Windsurf have two names, of which url is that of
// HTTP+SSE: the other is for the newer transport, and takes precedence.
func readAddressOfHost(v *values, set map[string]node) node {
	names := []string{"httpUrl", "serverUrl", "url"}
	for i, name := range names {
		if n := set[name]; !n.absent() {
			ignoreUnused(v, set, names[i+1:]...)
			return n
		}
	}
	return node{}
}

// readCommandObject puts the members of a command that is an object in the place of the settings of their meaning. Zed wrote commands
// so before it had those of the other hosts.
func readCommandObject(v *values, set map[string]node) {
	command := set["command"]
	if command.absent() || command.value.Kind() != '{' {
		return
	}
	delete(set, "command")
	for name, n := range v.settings(command, v.ignore, "path", "args", "env") {
		if name == "path" {
			name = "command"
		}
		set[name] = n
	}
}

// A kind is how a server is reached.
type kind int

const (
	overPipes kind = iota
	overHTTP
	overSSE
)

// readKind returns how the server is reached. That follows from command and url; type must
// agree. Only the settings of that kind are read, so others can neither be mistakes nor count for
// Same.
func readKind(v *values, e *entry, address node) kind {
	command, remote := !e.settings["command"].absent(), !address.absent()
	inferred := overPipes
	if remote && !command {
		inferred = overHTTP
	}
	declared := readType(v, e.settings["type"], inferred)
	switch {
	case !command && !remote && text(e.settings["source"]) == "extension":
		v.wrong(e.settings["source"], "only Zed knows the command of its extension: give the entry a command, and remove this")
	case !command && !remote:
		v.wrong(e.called(), "it has neither a command nor a url: give it one of them")
	case command && remote:
		v.wrong(e.called(), "it has both a command and a url: remove one of them")
	case declared == overPipes && !command:
		v.wrong(e.settings["type"], "a server of this type has a command, not a url")
	case declared != overPipes && !remote:
		v.wrong(e.settings["type"], "a server of this type has a url, not a command")
	default:
		return declared
	}
	return inferred // with which the other mistakes are found
}

// readType returns the kind that the key type names, or inferred if it is absent or
// unknown.
func readType(v *values, n node, inferred kind) kind {
	written, expanded, ok := v.string(n)
	if !ok {
		return inferred
	}
	switch strings.ToLower(expanded) {
	case "stdio", "local":
		return overPipes
	case "http", "streamable-http", "streamablehttp":
		return overHTTP
	case "sse":
		return overSSE
	default:
		v.wrong(n, "%s is none of stdio, http, streamable-http and sse", quote(written))
		return inferred
	}
}

// ignoreUnused marks settings as ignored if they mean nothing to a server of this kind.
func ignoreUnused(v *values, set map[string]node, names ...string) {
	for _, name := range names {
		if n := set[name]; !n.absent() {
			v.ignored = append(v.ignored, n.path)
		}
	}
}

func readCommand(v *values, set map[string]node) *stdio.Command {
	_, path, ok := v.string(set["command"])
	if ok && path == "" {
		v.wrong(set["command"], "the command is empty")
	}
	return &stdio.Command{
		Path: path,
		Args: v.strings(set["args"]),
		Env:  append(readEnvFile(v, set["envFile"]), readEnvironment(v, set["env"])...),
		Dir:  v.path(set["cwd"]),
	}
}

func readEnvironment(v *values, n node) []string {
	var env []string
	for _, m := range v.members(n) {
		if m.name == "" || strings.ContainsAny(m.name, "=\x00") {
			v.wrong(m.called(), "this cannot be the name of an environment variable")
		}
		env = append(env, m.name+"="+v.scalar(m.node))
	}
	return env
}

func readRemote(v *values, n node, set map[string]node) *streamable.Client {
	_, address, ok := v.string(n)
	if ok && parseHTTP(address) == nil {
		v.wrong(n, "expected a URL of http or https, with a host")
	}
	return &streamable.Client{URL: address, Header: readHeaders(v, set["headers"])}
}

// parseHTTP returns nil if the address is no URL of http or https with a host.
func parseHTTP(address string) *url.URL {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" {
		return nil
	}
	return parsed
}

func readHeaders(v *values, n node) http.Header {
	if n.absent() {
		return nil
	}
	headers := http.Header{}
	for _, m := range v.members(n) {
		_, value, _ := v.string(m.node)
		switch {
		case !header.IsName(m.name):
			v.wrong(m.called(), "this cannot be the name of a header")
		case headers.Values(m.name) != nil:
			v.wrong(m.called(), "the header is repeated: case does not matter")
		case !header.IsValue(value):
			v.wrong(m.node, "a header cannot hold a line break or control character")
		default:
			headers.Set(m.name, value)
		}
	}
	return headers
}
