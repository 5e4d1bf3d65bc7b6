//go:build unix

package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A setEntry is an entry of a random file.
type setEntry struct {
	name, kind, version string
	disabled, mistaken  bool
}

// A started server is what Each has seen, and what became of it.
type started struct {
	number  int
	entry   setEntry
	server  *server.Server // nil: it is away
	tries   atomic.Int64   // requests to a server that is away
	over    bool
	login   *setLogin   // nil: none
	without atomic.Bool // a request came without the login
}

// each puts a server behind each command, and nothing behind urls.
func (m *setModel) each(of *mcpjson.Server, _ *client.Options) {
	s := &started{number: len(m.all), entry: setEntry{name: of.Name}}
	away := &http.Client{Transport: s}
	switch transport := of.Transport.(type) {
	case *stdio.Command:
		s.entry.version = strings.TrimPrefix(transport.Env[0], "V=")
		s.server = server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s.server, protocol.Tool{Name: "slow"}, func(ctx context.Context, in struct{ Lasts time.Duration }) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, in.Lasts)
			defer cancel()
			<-ctx.Done()
			return fmt.Sprint(s.number), nil
		})
		of.Transport = inmem.New(s.server.Accept, inmem.Options{})
	case *streamable.Client:
		s.entry.version, transport.HTTP = transport.Header.Get("V"), away
	case *sse.Client:
		s.entry.version, transport.HTTP = transport.Header.Get("V"), away
	}
	m.all, m.latest[of.Name] = append(m.all, s), s
}

// RoundTrip implements http.RoundTripper.
func (s *started) RoundTrip(r *http.Request) (*http.Response, error) {
	s.tries.Add(1)
	if s.login != nil && r.Header.Get("Authorization") != fmt.Sprint("Bearer ", s.number) {
		s.without.Store(true)
	}
	return nil, errors.New("nobody is there")
}

// A setLogin is the login of one started server.
type setLogin struct {
	of    *started
	set   *Set
	wake  func()
	early bool // it was closed before the session had ended
	ends  int  // how often it was closed
}

func (m *setModel) login(of *mcpjson.Server) (Login, error) {
	if m.refused[of.Name] {
		return nil, errors.New("no login")
	}
	s := m.latest[of.Name]
	s.login = &setLogin{of: s, set: m.set}
	return s.login, nil
}

func (l *setLogin) Authorize(_ context.Context, r *http.Request) error {
	r.Header.Set("Authorization", fmt.Sprint("Bearer ", l.of.number))
	return nil
}

func (*setLogin) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	return false, nil
}

func (l *setLogin) OnLogin(f func()) { l.wake = f }

func (l *setLogin) Close() error {
	_, found := l.set.Session(l.of.entry.name)
	l.early, l.ends = found, l.ends+1
	return nil
}

func (e setEntry) text() string {
	settings := map[string]string{
		"command": `"command":"x","env":{"V":%q}`, "http": `"url":"http://s/mcp","headers":{"V":%q}`, "sse": `"type":"sse","url":"http://s/sse","headers":{"V":%q}`,
		"own header": `"url":"http://s/mcp","headers":{"Authorization":"Bearer own","V":%q}`,
	}[e.kind]
	timeout := "60000"
	if e.mistaken {
		timeout = `"long"`
	}
	return fmt.Sprintf(`%q:{`+settings+`,"disabled":%t,"timeout":%s}`, e.name, e.version, e.disabled, timeout)
}

func (e setEntry) logsIn() bool { return e.kind == "http" || e.kind == "sse" }

func drawFile(t *rapid.T) (entries []setEntry, file *mcpjson.File) {
	var texts []string
	names := rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(t, "names")
	for _, name := range names[:rapid.IntRange(0, 4).Draw(t, "servers")] {
		e := setEntry{
			name: name, kind: rapid.SampledFrom([]string{"command", "command", "http", "sse", "own header"}).Draw(t, "kind"), version: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"),
			disabled: rapid.IntRange(0, 7).Draw(t, "disabled") == 0, mistaken: rapid.IntRange(0, 7).Draw(t, "mistaken") == 0,
		}
		entries, texts = append(entries, e), append(texts, e.text())
	}
	file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers":{`+strings.Join(texts, ",")+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	return entries, file
}

// away is a transport to nobody.
type away struct{}

func (away) Open(context.Context) (transport.Link, error) { return nil, errors.New("nobody is there") }
