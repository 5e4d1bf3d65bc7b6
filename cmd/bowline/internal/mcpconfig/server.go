package mcpconfig

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/tailscale/hujson"
)

// servers reads the whole file.
func (r *reader) servers(root node) []Server {
	maps := []member{}
	for _, m := range r.members(root) {
		switch {
		case m.name != "mcpServers" && m.name != "servers":
			r.ignore(m)
		case m.value.Kind() != 'n':
			maps = append(maps, m)
		}
	}
	if len(maps) == 0 && len(r.findings) == 0 {
		r.wrong(root, "expected mcpServers or servers")
	}
	var servers []Server
	seen := map[string]bool{}
	for _, m := range maps {
		for _, entry := range r.members(m.node) {
			if seen[entry.name] {
				r.wrong(entry.called(), "mcpServers and servers both name it")
			}
			seen[entry.name] = true
			servers = append(servers, r.server(entry))
		}
	}
	return servers
}

func (r *reader) server(m member) Server {
	switch {
	case m.name == "":
		r.wrong(m.called(), "the name is empty")
	case strings.ContainsFunc(m.name, unicode.IsControl):
		r.wrong(m.called(), "the name has a control character")
	}
	set := r.settings(m.node, r.ignore,
		"type", "command", "args", "env", "cwd", "url", "headers", "timeout", "disabled", "bowline")
	s := Server{Name: m.name, Disabled: r.boolean(set["disabled"])}
	if s.Disabled || m.value.Kind() != '{' {
		return s
	}
	s.Kind = r.kind(m, set)
	r.process(&s, set)
	r.remote(&s, set)
	r.timeouts(&s, set)
	if s.Kind == Stdio {
		r.unused(set, "headers")
	} else {
		r.unused(set, "args", "env", "cwd")
	}
	return s
}

// kind follows from command or url, and type tells apart what has a url.
func (r *reader) kind(m member, set map[string]node) Kind {
	command, address := !set["command"].absent(), !set["url"].absent()
	inferred := Stdio
	if !command {
		inferred = HTTP
	}
	declared := r.declared(set["type"], inferred)
	switch {
	case !command && !address:
		r.wrong(m.called(), "it has neither a command nor a url")
	case command && address:
		r.wrong(m.called(), "it has both a command and a url")
	case declared == Stdio && !command:
		r.wrong(set["type"], "a server of this type has a command, not a url")
	case declared != Stdio && !address:
		r.wrong(set["type"], "a server of this type has a url, not a command")
	}
	return declared
}

// declared is what type says, or inferred if it says nothing we know.
func (r *reader) declared(n node, inferred Kind) Kind {
	written, expanded, ok := r.string(n)
	if !ok {
		return inferred
	}
	switch expanded {
	case "stdio":
		return Stdio
	case "http", "streamable-http", "streamableHttp":
		return HTTP
	case "sse":
		return SSE
	}
	r.wrong(n, "%s is none of stdio, http, streamable-http and sse", quote(written))
	return inferred
}

// unused notes the settings that are another kind's.
func (r *reader) unused(set map[string]node, names ...string) {
	for _, name := range names {
		if n := set[name]; !n.absent() {
			r.ignored = append(r.ignored, n.path)
		}
	}
}

func (r *reader) process(s *Server, set map[string]node) {
	_, command, ok := r.string(set["command"])
	if ok && command == "" {
		r.wrong(set["command"], "the command is empty")
	}
	s.Command = command
	s.Args = r.strings(set["args"])
	s.Env = r.environment(set["env"])
	s.Dir = r.directory(set["cwd"])
}

func (r *reader) environment(n node) []string {
	var env []string
	for _, m := range r.members(n) {
		if m.name == "" || strings.ContainsAny(m.name, "=\x00") {
			r.wrong(m.called(), "this cannot be the name of an environment variable")
		}
		_, value, _ := r.string(m.node)
		env = append(env, m.name+"="+value)
	}
	return env
}

func (r *reader) directory(n node) string {
	_, dir, ok := r.string(n)
	if !ok || dir == "" || filepath.IsAbs(dir) {
		return dir
	}
	base := filepath.Dir(r.name)
	if name := filepath.Base(base); name == ".vscode" || name == ".cursor" {
		base = filepath.Dir(base)
	}
	return filepath.Join(base, dir)
}

func (r *reader) remote(s *Server, set map[string]node) {
	_, address, ok := r.string(set["url"])
	if ok && !isHTTP(address) {
		r.wrong(set["url"], "expected a URL of http or https, with a host")
	}
	s.URL = address
	s.Headers = r.headers(set["headers"])
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
		case !IsHeaderName(m.name):
			r.wrong(m.called(), "this cannot be the name of a header")
		case headers.Values(m.name) != nil:
			r.wrong(m.called(), "the header is repeated: case does not matter")
		case !IsHeaderValue(value):
			r.wrong(m.node, "a header cannot hold a line break or control character")
		default:
			headers.Set(m.name, value)
		}
	}
	return headers
}

// IsHeaderName reports whether a text can be the name of an HTTP header.
func IsHeaderName(name string) bool { return name != "" && !strings.ContainsFunc(name, notOfToken) }

// IsHeaderValue reports whether a text can be the value of an HTTP header.
func IsHeaderValue(value string) bool {
	return !strings.ContainsFunc(value, func(c rune) bool { return unicode.IsControl(c) && c != '\t' })
}

// notOfToken is by RFC 9110, section 5.6.2.
func notOfToken(c rune) bool { return unusual(c) && !strings.ContainsRune("!#$%&'*+.^`|~", c) }

func (r *reader) timeouts(s *Server, set map[string]node) {
	own := r.settings(set["bowline"], func(m member) {
		r.wrong(m.called(), "there are only initTimeout and requestTimeout here")
	}, "initTimeout", "requestTimeout")
	s.InitTimeout = r.duration(own["initTimeout"])
	s.Timeout = cmp.Or(r.duration(own["requestTimeout"]), r.milliseconds(set["timeout"]))
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

// milliseconds is at most what a timer of JavaScript can hold. Some hosts
// count seconds, and nobody means 60 ms.
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
	if d < time.Second {
		line, column := r.position(n.at)
		r.notices = append(r.notices, fmt.Sprintf("%s:%d:%d: %s: this is %v: the number is in milliseconds", r.name, line, column, n.path, d))
	}
	return d
}
