package mcpjson

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variables returns a function that looks up variables.
type variables map[string]string

func (v variables) lookUp(name string) (string, bool) {
	value, set := v[name]
	return value, set
}

// parse calls Parse with its own environment.
func parse(path, text string, env variables) (*File, error) {
	f, err := Parse(path, []byte(text))
	if err == nil {
		f.Env = env.lookUp
	}
	return f, err
}

func mustParse(t *testing.T, text string, env variables) *File {
	t.Helper()
	f, err := parse("mcp.json", text, env)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return f
}

// settings are the settings of a server, to compare.
type settings struct {
	Name, Command, Dir string
	Args, Env          []string
	URL                string
	SSE                bool
	Header             http.Header
	Timeout, Init      time.Duration
}

// all returns every enabled server of a file.
func all(t *testing.T, f *File) []settings {
	t.Helper()
	var servers []settings
	for _, name := range f.Names() {
		s, err := f.Server(name)
		if err != nil {
			t.Fatalf("Server: %v", err)
		}
		servers = append(servers, flat(s))
	}
	return servers
}

func flat(s *Server) settings {
	result := settings{Name: s.Name, Timeout: s.Timeout, Init: s.InitTimeout}
	switch to := s.Transport.(type) {
	case *stdio.Command:
		result.Command, result.Args, result.Env, result.Dir = to.Path, to.Args, to.Env, to.Dir
	case *streamable.Client:
		result.URL, result.Header = to.URL, to.Header
	case *sse.Client:
		result.URL, result.Header, result.SSE = to.URL, to.Header, true
	}
	return result
}

// TestServersOfBothMaps checks that the servers of both maps are in file order.
//
// Guarantees: G-0018.1
func TestServersOfBothMaps(t *testing.T) {
	f := mustParse(t, `{"servers": {"z": {"command": "a"}, "a": {"command": "b"}}, "mcpServers": {"m": {"url": "http://h"}}}`, nil)
	if diff := cmp.Diff([]string{"z", "a", "m"}, f.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestOneServerAlone checks that mistakes in one server do not affect another, and that
// Transports has every server that is not disabled.
//
// Guarantees: G-0018.12, G-0018.13
func TestOneServerAlone(t *testing.T) {
	f := mustParse(t, `{"servers": {
		"asks": {"command": "x", "env": {"K": "${input:key}"}},
		"unset": {"url": "http://h/${NO}"},
		"wrong": 7,
		"off": {"command": "x", "enabled": false},
		"old": {"command": "x", "disabled": true, "enabled": true},
		"sse": {"type": "sse", "url": "http://h/${NO}"},
		"good": {"command": "x", "enabled": true, "disabled": false}}}`, nil)
	good, err := f.Transport("good")
	if command, ok := good.(*stdio.Command); err != nil || !ok || command.Path != "x" {
		t.Errorf("Transport is %+v, %v", good, err)
	}
	var usable, broken []string
	for name, to := range f.Transports() {
		checked, ok := to.(transport.Checked)
		if !ok {
			t.Fatalf("%s cannot be checked", name)
		}
		var wrong *Error
		switch err := checked.Check(); {
		case err == nil:
			usable = append(usable, name)
		case !errors.As(err, &wrong):
			t.Errorf("%s: Check: %v, want an *Error", name, err)
		default:
			broken = append(broken, name)
			if _, err := to.Open(t.Context()); !errors.As(err, &wrong) {
				t.Errorf("%s: Open: %v, want an *Error", name, err)
			}
		}
	}
	for name := range f.Transports() {
		if name == "unset" {
			break
		}
	}
	if diff := cmp.Diff([][]string{{"good"}, {"asks", "unset", "wrong", "sse"}}, [][]string{usable, broken}); diff != "" {
		t.Errorf("usable and broken (-want +got):\n%s", diff)
	}
}

// TestText reads files that have more than plain JSON.
//
// Guarantees: G-0018.2
func TestText(t *testing.T) {
	want := all(t, mustParse(t, `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]"]}}}`, nil))
	for name, text := range map[string]string{
		"byte order mark":  "\uFEFF" + `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]"]}}}`,
		"comments":         "// {\n{/* [ */\"mcpServers\": {\"a\": {\"command\": \"x\", // \"\n\"args\": [\"//\", \"/* */\", /*/**/\",]\"]}}}",
		"comment at end":   `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]"]}}} // the end`,
		"trailing commas":  `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]",],},},}`,
		"carriage returns": "{\r\n\"mcpServers\": {// a\r\n\"a\": {\"command\": \"x\", \"args\": [\"//\", \"/* */\", \",]\"]}}}\r\n",
		"null settings":    `{"servers": null, "mcpServers": {"a": {"url": null, "type": null, "env": null, "timeout": null, "bowline": {"start": null, "requestTimeout": null}, "command": "x", "args": ["//", "/* */", ",]"]}}}`,
	} {
		if diff := cmp.Diff(want, all(t, mustParse(t, text, nil))); diff != "" {
			t.Errorf("%s: servers (-want +got):\n%s", name, diff)
		}
	}
}

// TestParseLeavesTheTextAlone checks that Parse changes neither the text nor the array behind it.
func TestParseLeavesTheTextAlone(t *testing.T) {
	const whole = `{"servers": {}} and more`
	text := []byte(whole)
	f, err := Parse("m", text[:15])
	if err != nil || string(text) != whole {
		t.Fatalf("Parse: %v, and the text became %q", err, text)
	}
	text[0] = '['
	f.Text()[0] = '('
	if got := string(f.Text()); got != whole[:15] {
		t.Errorf("the text of the file is %s", got)
	}
}

// TestKinds checks that the kind follows from command, url, httpUrl and type.
func TestKinds(t *testing.T) {
	for written, want := range map[string]settings{
		`"command": "x"`:                                          {Command: "x"},
		`"command": "x", "type": "stdio"`:                         {Command: "x"},
		`"command": "x", "type": "STDIO"`:                         {Command: "x"},
		`"url": "http://h"`:                                       {URL: "http://h"},
		`"url": "http://h", "type": "http"`:                       {URL: "http://h"},
		`"url": "http://h", "type": "HTTP"`:                       {URL: "http://h"},
		`"url": "http://h", "type": "Streamable-Http"`:            {URL: "http://h"},
		`"url": "http://h", "type": "streamableHttp"`:             {URL: "http://h"},
		`"url": "https://h:1/p?q#f", "type": "http"`:              {URL: "https://h:1/p?q#f"},
		`"url": "http://[::1]:80/", "type": "${T:-http}"`:         {URL: "http://[::1]:80/"},
		`"url": "HTTPS://user:pw@h", "type": "${env:NO:-http}"`:   {URL: "HTTPS://user:pw@h"},
		`"url": "http://h", "type": "SSE", "headers": {"A": "b"}`: {URL: "http://h", SSE: true, Header: http.Header{"A": {"b"}}},
		`"httpUrl": "http://h"`:                                   {URL: "http://h"},
		`"url": "http://sse", "httpUrl": "http://h"`:              {URL: "http://h"},
		`"url": "http://h", "httpUrl": null`:                      {URL: "http://h"},
	} {
		want.Name = "a"
		got := all(t, mustParse(t, `{"mcpServers": {"a": {`+written+`}}}`, nil))
		if diff := cmp.Diff([]settings{want}, got); diff != "" {
			t.Errorf("{%s} (-want +got):\n%s", written, diff)
		}
	}
}

// TestDir checks that Dir is relative to the project's folder.
//
// Guarantees: G-0018.6
func TestDir(t *testing.T) {
	absolute := t.TempDir()
	for _, c := range []struct{ file, cwd, want string }{
		{"mcp.json", "web", "web"},
		{"p/.mcp.json", "./web/../api", "p/api"},
		{"p/.mcp.json", "", ""},
		{"p/.vscode/mcp.json", "web", "p/web"},
		{"p/.cursor/mcp.json", "..", "."},
		{"/p/.vscode/x/mcp.json", "web", "/p/.vscode/x/web"},
		{"p/mcp.json", "${ROOT}", filepath.ToSlash(absolute)},
	} {
		text := `{"servers": {"a": {"command": "x", "cwd": "` + c.cwd + `"}}}`
		f, err := parse(filepath.FromSlash(c.file), text, variables{"ROOT": absolute})
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if got := filepath.ToSlash(all(t, f)[0].Dir); got != c.want {
			t.Errorf("%+v: Dir is %q", c, got)
		}
	}
}

// TestTimeouts reads milliseconds of hosts and durations of Bowline.
//
// Guarantees: G-0018.8
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		settings      string
		timeout, init time.Duration
		notices       []string
	}{
		{settings: `"timeout": 1000`, timeout: time.Second},
		{settings: `"timeout": 1500.5`, timeout: 1500*time.Millisecond + 500*time.Microsecond},
		{settings: `"timeout": 2147483647`, timeout: 2147483647 * time.Millisecond},
		{settings: `"timeout": 6e4, "bowline": {"requestTimeout": "2m"}`, timeout: 2 * time.Minute},
		{settings: `"timeout": 1, "bowline": {"requestTimeout": "2m"}`, timeout: 2 * time.Minute},
		{settings: `"timeout": "1 minute", "bowline": {"requestTimeout": "2m"}`, timeout: 2 * time.Minute},
		{settings: `"bowline": {"initTimeout": "${INIT:-10s}", "requestTimeout": null}`, init: 10 * time.Second},
		{settings: `"timeout": 60`, timeout: 60 * time.Millisecond, notices: []string{
			"mcp.json:1:47: servers.a.timeout: this is 60ms: the number is in milliseconds"}},
	} {
		s, err := mustParse(t, `{"servers": {"a": {"command": "x", `+c.settings+`}}}`, nil).Server("a")
		if err != nil {
			t.Fatalf("Server: %v", err)
		}
		if s.Timeout != c.timeout || s.InitTimeout != c.init {
			t.Errorf("{%s}: Timeout is %v, InitTimeout %v", c.settings, s.Timeout, s.InitTimeout)
		}
		if diff := cmp.Diff(c.notices, s.Notices); diff != "" {
			t.Errorf("{%s}: notices (-want +got):\n%s", c.settings, diff)
		}
	}
}

// TestSettings reads the bowline block.
//
// Guarantees: G-0018.8
func TestSettings(t *testing.T) {
	whole := func(number int) *int { return &number }
	no, yes := false, true
	for written, want := range map[string]Settings{
		`{}`: {},
		`{"maxTimeout": "1h", "backoffMin": "1s", "backoffMax": "2s", "liveness": "3s", "retries": 2}`: {
			MaxTimeout: time.Hour, BackoffMin: time.Second, BackoffMax: 2 * time.Second, Liveness: 3 * time.Second, Retries: whole(2)},
		`{"backoffMin": "1s"}`:                     {BackoffMin: time.Second},
		`{"backoffMax": "1s"}`:                     {BackoffMax: time.Second},
		`{"backoffMin": "1s", "backoffMax": "1s"}`: {BackoffMin: time.Second, BackoffMax: time.Second},
		`{"liveness": "off", "retries": 0}`:        {Liveness: -1, Retries: whole(0)},
		`{"retries": 100}`:                         {Retries: whole(100)},
		`{"waitForReady": true, "trustAnnotations": false, "progressRestarts": true}`: {
			WaitForReady: &yes, TrustAnnotations: &no, ProgressRestarts: &yes},
		`{"toolModes": {"t": "stateful", "u": "stateless"}}`: {ToolModes: map[string]protocol.ToolMode{"t": protocol.Stateful, "u": protocol.Stateless}},
	} {
		s, err := mustParse(t, server(`"command": "x", "bowline": `+written), nil).Server("a")
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if diff := cmp.Diff(want, s.Settings); diff != "" {
			t.Errorf("%s (-want +got):\n%s", written, diff)
		}
	}
}

// TestIgnoredKeysAreOneNotice checks that all ignored keys of a server are in one notice.
//
// Guarantees: G-0018.7
func TestIgnoredKeysAreOneNotice(t *testing.T) {
	f := mustParse(t, `{"$schema": "s", "bowline": {}, "servers": {
		"a b": {"command": "x", "headers": {}, "Command": "y"},
		"c": {"url": "http://h", "env": {"K": "v"}, "args": [], "cwd": "", "alwaysAllow": []}}}`, nil)
	for name, want := range map[string]string{
		"a b": `mcp.json: ignored: ["$schema"], servers["a b"].Command, servers["a b"].headers`,
		"c":   `mcp.json: ignored: ["$schema"], servers.c.alwaysAllow, servers.c.args, servers.c.env, servers.c.cwd`,
	} {
		if diff := cmp.Diff([]string{want}, notices(t, f, name)); diff != "" {
			t.Errorf("notices of %q (-want +got):\n%s", name, diff)
		}
	}
	many := `{"servers": {"a": {"command": "x"}}`
	for i := range 30 {
		many += fmt.Sprintf(`, "x%d": {}`, i)
	}
	if got := notices(t, mustParse(t, many+"}", nil), "a"); len(got) != 1 || !strings.HasSuffix(got[0], ", x19 and 10 more") {
		t.Errorf("notices of 30 unknown keys: %q", got)
	}
}

func notices(t *testing.T, f *File, name string) []string {
	t.Helper()
	s, err := f.Server(name)
	if err != nil {
		t.Fatalf("Server: %v", err)
	}
	return s.Notices
}

// TestLoad checks that a file that cannot be read and a file with mistakes have different
// errors, and that the environment of the process is used.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a folder was read")
	}
	path := filepath.Join(dir, "mcp.json")
	for size, refused := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
		write(t, path, `{"servers": {}}`+strings.Repeat(" ", size-15))
		if _, err := Load(path); (err != nil) != refused {
			t.Errorf("a file of %d bytes: %v", size, err)
		}
	}
	write(t, path, `{"servers": {"a": {"command": "${BOWLINE_TEST_COMMAND}"}}}`)
	f, err := Load(path)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	var wrong *Error
	if _, err := f.Server("a"); !errors.As(err, &wrong) || wrong.Path != path {
		t.Errorf("an unset variable: %v", err)
	}
	t.Setenv("BOWLINE_TEST_COMMAND", "x")
	if got := all(t, f); got[0].Command != "x" {
		t.Errorf("with the variable set: %+v", got)
	}
}

// TestFind checks the order in which the files of a folder are preferred.
//
// Guarantees: G-0018.10
func TestFind(t *testing.T) {
	dir := t.TempDir()
	if path, ok := Find(dir); ok {
		t.Errorf("an empty folder has %s", path)
	}
	for _, folder := range []string{".vscode", ".cursor", ".mcp.json"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".vscode/mcp.json", ".cursor/mcp.json", "mcp.json", ".mcp.json"} {
		want := filepath.Join(dir, name)
		if name == ".mcp.json" {
			os.Remove(want) // a folder of that name did not count
		}
		write(t, want, "{}")
		if path, ok := Find(dir); !ok || path != want {
			t.Errorf("after %s was added, Find is %s, %v", name, path, ok)
		}
	}
}

// TestServer finds a server by its name, and lists the names if there is none.
//
// Guarantees: G-0018.9
func TestServer(t *testing.T) {
	f := mustParse(t, `{"servers": {"files": {"command": "x"}, "git": {"command": "y"}, "old": {"disabled": true}, "off": {"enabled": false}}}`, nil)
	first, err := f.Transport("git")
	if err != nil {
		t.Fatal(err)
	}
	first.(*stdio.Command).Path = "mine"
	if got := all(t, f); got[1].Command != "y" {
		t.Error("a change of the returned transport changed the file")
	}
	for _, c := range []struct {
		file *File
		name string
		kind error
		want string
	}{
		{f, "flies", ErrNotFound, `mcp.json: no such server: "flies": did you mean files? It has: files, git, old, off`},
		{f, "FILES", ErrNotFound, `mcp.json: no such server: "FILES": did you mean files? It has: files, git, old, off`},
		{f, "postgres", ErrNotFound, `mcp.json: no such server: "postgres": it has: files, git, old, off`},
		{f, "old", ErrDisabled, `mcp.json: the server is disabled: "old"`},
		{f, "off", ErrDisabled, `mcp.json: the server is disabled: "off"`},
		{&File{Path: "mcp.json"}, "a\x1b", ErrNotFound, `mcp.json: no such server: "a\x1b": it has none`},
	} {
		if _, err := c.file.Transport(c.name); !errors.Is(err, c.kind) || err.Error() != c.want {
			t.Errorf("Transport(%q): %v\nwant %s", c.name, err, c.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSame checks which differences count.
//
// Guarantees: G-0018.18
func TestSame(t *testing.T) {
	const whole = `"command": "x", "args": ["${A}"], "env": {"B": 1}, "timeout": 1000, "bowline": {"retries": 1, "toolModes": {"t": "stateful"}}`
	read := func(settings string, env variables) *Server {
		f := mustParse(t, server(settings), env)
		s, err := f.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := read(whole, variables{"A": "a"})
	for settings, same := range map[string]bool{
		whole: true,
		whole + `, "autoApprove": ["t"], "enabled": true,`:        true,
		strings.ReplaceAll(whole, ", ", ", // so\n"):              true,
		strings.Replace(whole, "${A}", "a", 1):                    true,
		strings.Replace(whole, `"x"`, `"y"`, 1):                   false,
		strings.Replace(whole, `["${A}"]`, `["${A}", ""]`, 1):     false,
		strings.Replace(whole, `1}, "time`, `2}, "time`, 1):       false,
		strings.Replace(whole, "1000", "2000", 1):                 false,
		strings.Replace(whole, `"retries": 1`, `"retries": 2`, 1): false,
		strings.Replace(whole, "stateful", "stateless", 1):        false,
		`"url": "http://h"`:                                       false,
	} {
		if before.Same(read(settings, variables{"A": "a"})) != same {
			t.Errorf("%s\nis the same: %v", settings, !same)
		}
	}
	const remote = `"url": "http://h", "headers": {"A": "b"}`
	for _, c := range []struct {
		before, after string
		same          bool
	}{
		{remote, remote + `, "env": {"A": "b"}, "args": ["c"], "cwd": "d"`, true},
		{remote, remote + `, "envFile": "/does/not/exist"`, true},
		{`"command": "x"`, `"command": "x", "headers": {"A": "${UNSET}"}`, true},
		{`"httpUrl": "http://h"`, `"httpUrl": "http://h", "url": "http://i"`, true},
		{`"url": "http://h", "type": "http"`, `"url": "http://h", "type": "sse"`, false},
		{remote, strings.Replace(remote, `"b"`, `"c"`, 1), false},
		{`"command": "x", "bowline": {"requestTimeout": "1s"}`, `"command": "x", "timeout": 2000, "bowline": {"requestTimeout": "1s"}`, true},
		{`"command": "x"`, `"command": "x", "timeout": 2000`, false},
	} {
		if got := read(c.before, nil).Same(read(c.after, nil)); got != c.same {
			t.Errorf("%s\n%s\nthe same: %v, want %v", c.before, c.after, got, c.same)
		}
	}
	for _, settings := range []string{`"liveness": "off"`, `"trustAnnotations": true`, `"trustAnnotations": false`} {
		if read(`"command": "x", "bowline": {`+settings+`}`, nil).Same(read(`"command": "x"`, nil)) {
			t.Errorf("%s changes nothing", settings)
		}
	}
	if read(`"command": "x", "bowline": {"waitForReady": true}`, nil).Same(read(`"command": "x", "bowline": {"waitForReady": false}`, nil)) {
		t.Error("a setting that is true is the same as one that is false")
	}
	two := mustParse(t, `{"servers": {"a": {"command": "x"}, "b": {"command": "x"}}}`, nil)
	a, errA := two.Server("a")
	b, errB := two.Server("b")
	if errA != nil || errB != nil || a.Same(b) {
		t.Errorf("two servers with other names are the same: %v, %v", errA, errB)
	}
	if before.Same(read(whole, variables{"A": "b"})) {
		t.Error("a variable has changed, and Same is true")
	}
	withFile := func(content string) *Server {
		f := mustParse(t, server(`"command": "x", "envFile": "/e"`), nil)
		f.ReadFile = func(string) ([]byte, error) { return []byte(content), nil }
		s, err := f.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if one := withFile("A=1"); one.Same(withFile("A=2")) || !one.Same(withFile("A=1")) {
		t.Error("a change of envFile is not compared correctly")
	}
}
