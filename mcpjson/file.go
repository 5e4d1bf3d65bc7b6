package mcpjson

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/tailscale/hujson"
)

const (
	maxSize     = 1 << 20 // bytes of a file, and of what variables may add to one server
	maxBrackets = 10_000  // in a file; bounds the depth, for the parser recurses
	maxMistakes = 100     // in one Error
)

var (
	// ErrNotFound reports that the file has no server of that name.
	ErrNotFound = errors.New("no such server")
	// ErrDisabled reports that the file contains the server but disables it.
	ErrDisabled = errors.New("the server is disabled")
)

// listNames are the keys at the top that list servers: of most hosts, of VS Code, and of Zed.
var listNames = [...]string{"mcpServers", "servers", "context_servers"}

// entryNames are the keys of an entry that mean something here. The third line is about what a host does not offer, the last
// about what only a gateway does.
var entryNames = [...]string{
	"type", "command", "args", "env", "envFile", "cwd", "url", "httpUrl", "serverUrl", "headers",
	"timeout", "disabled", "enabled", "source",
	"includeTools", "excludeTools", "disabledTools", "tools",
	"bowline",
}

// A File is an mcp.json file. Each server is checked only when you ask for it, so a
// mistake in one server does not affect another. Set the fields before you ask for the
// first server. A File is not safe for concurrent use.
type File struct {
	Path string // as given to Load or Parse

	// Env looks up an environment variable. Nil: os.LookupEnv.
	Env func(name string) (value string, set bool)

	// ReadFile reads an envFile. Nil: it must be a regular file, so that reading does
	// not block, of at most 1 MiB.
	ReadFile func(path string) ([]byte, error)

	// Ask asks the user for the value of ${input:ID}. The File calls it when a server
	// needs the input, and remembers the answer. Nil: ${input:ID} is a mistake in every
	// server that contains it.
	Ask func(Input) (answer string, err error)

	text    []byte
	entries []*entry // in file order, the disabled ones too
	inputs  node
	gateway node              // the bowline block at the top
	answers map[string]string // of Ask, by the ID of the input
	ignored []string          // keys beside the servers
}

// An entry is a server in the file, before its settings are checked.
type entry struct {
	member
	disabled bool
	settings map[string]node
	ignored  []string  // keys
	findings []finding // of its name, its keys and the switches
	rejected string    // what the program has found wrong
}

// Load reads the file at path. If the file cannot be read, the error comes from package
// os. If it is not JSON, or has no list of servers, the error is an *Error. Load blocks
// until the file is read, which is forever for a FIFO that nobody writes to.
func Load(path string) (*File, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// readBounded reads a file, but not much more than it may have.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxSize+1))
}

// Parse parses text as Load does the content of a file. The path need not exist. Relative
// paths in the text start at its folder.
func Parse(path string, text []byte) (*File, error) {
	f := &File{Path: path, text: bytes.Clone(bytes.TrimPrefix(text, []byte("\uFEFF")))}
	v := newValues(f)
	if root := readRoot(v); !root.absent() {
		f.readEntries(v, root)
	}
	if err := f.failure(v.findings); err != nil {
		return nil, err
	}
	return f, nil
}

// Text returns the text of the file, without a byte order mark.
func (f *File) Text() []byte { return bytes.Clone(f.text) }

// Find returns the path of the file in a project's folder: the first that exists of
// .mcp.json (Claude Code), mcp.json, .cursor/mcp.json and .vscode/mcp.json. The file is
// only as trustworthy as the author of the folder: ask the user before you start its
// servers.
func Find(dir string) (path string, ok bool) {
	for _, name := range []string{".mcp.json", "mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	return "", false
}

// Names returns the names of the servers that are not disabled, in file order.
func (f *File) Names() []string {
	var names []string
	for e := range f.enabled() {
		names = append(names, e.name)
	}
	return names
}

// Server returns the server with the given name, as a new value that the caller may
// change. It checks no other server. The error is an *Error with all mistakes of the
// server, matches ErrDisabled, or matches ErrNotFound and lists the existing names.
func (f *File) Server(name string) (*Server, error) {
	names := make([]string, len(f.entries))
	for i, e := range f.entries {
		switch {
		case e.name == name && e.disabled:
			return nil, fmt.Errorf("%s: %w: %s", f.Path, ErrDisabled, quote(name))
		case e.name == name:
			return f.server(e)
		}
		names[i] = e.name
	}
	return nil, fmt.Errorf("%s: %w: %s: %s", f.Path, ErrNotFound, quote(name), suggest.Among(name, names))
}

// Transport returns the Transport of the server with the given name; see Server.
func (f *File) Transport(name string) (transport.Transport, error) {
	server, err := f.Server(name)
	if err != nil {
		return nil, err
	}
	return server.Transport, nil
}

// Transports ranges over the servers that are not disabled, in file order. It includes
// servers with mistakes: the Check and Open methods of their transports return the
// *Error. So Connect and Start of a client.Client fail with it for that server only.
func (f *File) Transports() iter.Seq2[string, transport.Transport] {
	return func(yield func(string, transport.Transport) bool) {
		for e := range f.enabled() {
			var t transport.Transport
			if server, err := f.server(e); err != nil {
				t = mistaken{err}
			} else {
				t = server.Transport
			}
			if !yield(e.name, t) {
				return
			}
		}
	}
}

// Check checks all servers that are not disabled, and returns an *Error with all mistakes
// of the file, in file order, or nil.
func (f *File) Check() error {
	ofGateway := newValues(f)
	readGateway(ofGateway, f.gateway)
	findings := ofGateway.findings
	for e := range f.enabled() {
		v := newValues(f)
		readServer(v, e)
		findings = append(findings, v.findings...)
	}
	return f.failure(findings)
}

// Gateway returns the block bowline at the top of the file, or an empty one if the file has none. The error is an *Error
// with all mistakes of the block.
func (f *File) Gateway() (*Gateway, error) {
	v := newValues(f)
	g := readGateway(v, f.gateway)
	if err := f.failure(v.findings); err != nil {
		return nil, err
	}
	return g, nil
}

// Reject makes servers wrong, at their names, as if their entries had these mistakes: Server and Check then report them. A program uses
// it for what only it can find wrong. It replaces what an earlier Reject said; names that the file does not have are left out.
func (f *File) Reject(messages map[string]string) {
	for e := range f.enabled() {
		e.rejected = messages[e.name]
	}
}

// mistaken is the transport of a server with mistakes.
type mistaken struct{ err error }

// Check implements transport.Checked.
func (m mistaken) Check() error { return m.err }

// Open implements transport.Transport.
func (m mistaken) Open(context.Context) (transport.Link, error) { return nil, m.err }

func (f *File) enabled() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range f.entries {
			if !e.disabled && !yield(e) {
				return
			}
		}
	}
}

func (f *File) server(e *entry) (*Server, error) {
	v := newValues(f)
	server := readServer(v, e)
	if err := f.failure(v.findings); err != nil {
		return nil, err
	}
	if ignored := slices.Concat(f.ignored, v.ignored); len(ignored) > 0 {
		v.notices = append(v.notices, fmt.Sprintf("%s: ignored: %s", f.Path, suggest.List(ignored)))
	}
	server.Notices = v.notices
	return server, nil
}

// folder returns the folder at which relative paths start.
func (f *File) folder() string {
	folder := filepath.Dir(f.Path)
	switch filepath.Base(folder) {
	case ".vscode", ".cursor", ".gemini", ".zed":
		return filepath.Dir(folder)
	}
	return folder
}

// meant proposes the name of the list, if the file has one whose name is written otherwise.
func (f *File) meant() string {
	plain := strings.NewReplacer("_", "", "-", "", `["`, "", `"]`, "")
	for _, path := range f.ignored {
		for _, known := range listNames {
			if name, meant := plain.Replace(path), plain.Replace(known); strings.EqualFold(name, meant) || strings.EqualFold(name+"s", meant) {
				return "; did you mean " + known + "?"
			}
		}
	}
	return ""
}

// readEntries finds the servers of the file. It keeps the mistakes of an entry in that
// entry.
func (f *File) readEntries(v *values, root node) {
	lists := f.outline(v, root)
	if len(lists) == 0 && len(v.findings) == 0 {
		v.wrong(root, "expected mcpServers, servers or context_servers%s", f.meant())
	}
	byName := map[string]*entry{}
	for _, list := range lists {
		object, ok := list.value.(*hujson.Object)
		if !ok {
			v.expected(list.node, "an object")
			continue
		}
		for m := range membersOf(list.node, object) {
			if e, ok := byName[m.name]; ok {
				e.repeated(m)
				continue
			}
			e := f.readEntry(m)
			byName[m.name] = e
			f.entries = append(f.entries, e)
		}
	}
}

// outline notes what is at the top of the file, and returns the lists of servers.
func (f *File) outline(v *values, root node) (lists []member) {
	for _, m := range v.members(root) {
		switch {
		case m.name == "inputs":
			f.inputs = m.node
		case m.name == "bowline":
			f.gateway = m.node
		case m.value.Kind() == 'n' && slices.Contains(listNames[:], m.name): // as if it were not there
		case !slices.Contains(listNames[:], m.name):
			f.ignored = append(f.ignored, m.path)
		default:
			lists = append(lists, m)
		}
	}
	return lists
}

// wrong returns what is known to be wrong before the settings are read.
func (e *entry) wrong() []finding {
	if e.rejected == "" {
		return e.findings
	}
	return append(slices.Clip(e.findings), finding{e.nameAt, e.path, e.rejected})
}

func (e *entry) repeated(m member) {
	message := "the name is repeated: rename or remove one of the two"
	if m.path != e.path {
		other, _, _ := strings.Cut(e.path, ".")
		this, _, _ := strings.Cut(m.path, ".")
		message = other + " and " + this + " both name it: rename or remove one of the two"
	}
	e.findings = append(e.findings, finding{m.nameAt, m.path, message})
}

func (f *File) readEntry(m member) *entry {
	v := newValues(f)
	switch {
	case m.name == "":
		v.wrong(m.called(), "the name is empty")
	case strings.ContainsFunc(m.name, unicode.IsControl):
		v.wrong(m.called(), "the name has a control character")
	}
	settings := v.settings(m.node, v.ignore, entryNames[:]...)
	readCommandObject(v, settings)
	disabled := v.boolean(settings["disabled"], false) || !v.boolean(settings["enabled"], true)
	return &entry{member: m, disabled: disabled, settings: settings, ignored: v.ignored, findings: v.findings}
}

// readRoot returns the tree of the text, or notes why there is none.
func readRoot(v *values) (root node) {
	text := v.file.text
	if len(text) > maxSize {
		v.wrong(root, "the file is above the limit of %d bytes", maxSize)
		return root
	}
	if at, bad := invalidUTF8(text); bad {
		v.wrong(node{at: at}, "this is not UTF-8: save the file as UTF-8")
		return root
	}
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) > maxBrackets {
		v.wrong(root, "the file has more than %d opening brackets", maxBrackets)
		return root
	}
	if len(bytes.TrimSpace(text)) == 0 {
		v.wrong(root, `the file is empty; without servers it is {"mcpServers": {}}`)
		return root
	}
	// Without a line break at its end, a comment on the last line would not be complete.
	value, err := hujson.Parse(append(bytes.Clone(text), '\n'))
	if err != nil {
		at, message := syntax(text, err)
		v.wrong(node{at: at}, "%s", message)
		return root
	}
	return node{at: value.StartOffset, value: value.Value}
}

func invalidUTF8(text []byte) (at int, bad bool) {
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at, true
		}
		at += size
	}
	return 0, false
}

// failure returns an *Error with these findings, or nil if there are none.
func (f *File) failure(findings []finding) error {
	if len(findings) == 0 {
		return nil
	}
	slices.SortStableFunc(findings, func(a, b finding) int { return cmp.Compare(a.at, b.at) })
	err := &Error{Path: f.Path}
	for _, found := range findings[:min(len(findings), maxMistakes)] {
		line, column := f.position(found.at)
		err.Mistakes = append(err.Mistakes, Mistake{line, column, found.path, found.message})
	}
	return err
}

// position returns the line and the column of an offset, from 1.
func (f *File) position(at int) (line, column int) {
	before := f.text[:at]
	return 1 + bytes.Count(before, []byte("\n")), at - bytes.LastIndexByte(before, '\n')
}
