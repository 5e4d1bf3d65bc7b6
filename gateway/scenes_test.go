package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/scene"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

var rewrite = flag.Bool("update", false, "rewrite testdata/scenes")

// scenes are played in this order. Each is compared with testdata/scenes/NAME.txt.
var scenes = []struct {
	name, title string
	play        func(*stage)
}{
	{"legacy", "Two clients of 2025-11-25 at servers of both eras", playLegacy},
}

// Everything that anybody outside of a gateway sees is as it was when somebody has read it last: the frames of clients and servers, the log, the
// trail, the report and the metrics. What has changed on purpose is written by -update, and read in the difference.
func TestScenes(t *testing.T) {
	for _, one := range scenes {
		t.Run(one.name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				s := &stage{Scene: scene.New(one.title), known: make(map[string]map[string]string)}
				s.fleet = &fleet{
					t: t, servers: make(map[string]*server.Server), links: make(map[string]transport.Link), broken: make(map[string]bool),
					opened: make(map[string]int),
				}
				one.play(s)
				s.step("The gateway is closed")
				if err := s.Close(context.Background()); err != nil {
					s.Note("gateway", "ended with "+err.Error())
				}
				for _, name := range keys(s.servers) {
					s.servers[name].Close(context.Background())
				}
				s.step("")
				s.Compare(t, filepath.Join("testdata", "scenes", one.name+".txt"), *rewrite)
			})
		})
	}
}

// A stage is a fleet that is watched from all sides.
type stage struct {
	*fleet
	*scene.Scene
	options gateway.Options
	backs   map[string]string              // the revisions of the sessions with servers, by their names
	others  map[string]transport.Transport // servers that are reached in other ways
	known   map[string]map[string]string   // what was shown last of the report, and of the metrics
}

// open makes the gateway, and applies a file.
func (s *stage) open(file string) {
	s.Once(`\{"io\.modelcontextprotocol/clientCapabilities":.*?"io\.modelcontextprotocol/protocolVersion":"[^"]*"`, "meta")
	s.Mask(`[A-Z2-7]{26}`, "random")
	s.Places("ada", "bob", "gateway", "a", "b", "c", "tool of a", "tool of b", "log", "audit", "report", "metrics")
	o := s.options
	o.Info.Version = "1"
	o.Client.Conn.Log = slog.New(&logged{s: s.Scene})
	o.Server.Conn.Log = o.Client.Conn.Log
	o.Audit = func(_ context.Context, r audit.Record) {
		s.Note("audit", strings.TrimSuffix(strings.TrimPrefix(encoded(r), `{"v":0,"n":0,`), `,"prev":""}`))
	}
	o.Digest = func(arguments []byte) string { return string(arguments) }
	o.Each = func(of *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion = s.backs[of.Name]
		o.Conn.BackoffJitter = 1e-12
		to := s.others[of.Name]
		if to == nil {
			to = (*place)(&struct {
				*fleet
				name string
			}{s.fleet, of.Name})
		}
		of.Transport = transcript.Tap(to, func(e transcript.Entry) { s.Note(of.Name, entryText(e)) })
	}
	s.Gateway = gateway.New(o)
	s.applies(file)
}

// applies applies a file with these servers and this block.
func (s *stage) applies(file string) {
	changes, err := s.Apply(context.Background(), load(s.t, file))
	s.Note("gateway", strings.TrimSpace(fmt.Sprintf("applied: %+v %s", changes, reasonOf(err))))
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// step ends a step with what has changed in the report, and begins another.
func (s *stage) step(title string, more ...any) {
	synctest.Wait()
	if s.Gateway != nil {
		s.report()
	}
	s.Step(fmt.Sprintf(title, more...))
}

// report shows what of the report is not as it was shown last.
func (s *stage) report() {
	r := s.Report()
	if !r.At.Equal(time.Now()) {
		s.Note("report", fmt.Sprint("is of ", r.At))
	}
	r.File = filepath.Base(r.File)
	slices.SortFunc(r.Clients, func(a, b admin.ClientReport) int { return strings.Compare(a.Program, b.Program) }) // they have no order
	now := flat("", valueOf([]byte(encoded(r))))
	delete(now, "at")
	s.differs("report", now)
}

// metrics shows which lines of the metrics are not as they were shown last.
func (s *stage) metrics() {
	synctest.Wait()
	w := httptest.NewRecorder()
	admin.New(&watched{s.Gateway, s}).Local().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	now := make(map[string]string)
	for line := range strings.Lines(w.Body.String()) {
		i := strings.LastIndexByte(line, ' ')
		now[line[:i]] = strings.TrimSpace(line[i:])
	}
	s.differs("metrics", now)
}

// A watched gateway is one with a door.
type watched struct {
	*gateway.Gateway
	s *stage
}

func (w *watched) Reload(context.Context) error { w.s.Note("door", "reload"); return nil }
func (w *watched) End()                         { w.s.Note("door", "end") }
func (w *watched) Records() ([]audit.Record, <-chan struct{}, bool) {
	return nil, nil, false
}

func (s *stage) differs(what string, now map[string]string) {
	before := s.known[what]
	s.known[what] = now
	all := maps.Clone(now)
	maps.Copy(all, before)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, had := before[name]
		is, has := now[name]
		switch {
		case !had:
			s.Note(what, name+" = "+is)
		case !has:
			s.Note(what, name+" is gone")
		case was != is:
			s.Note(what, fmt.Sprintf("%s: %s, then %s", name, was, is))
		}
	}
}

// flat returns the values of a document by where they are. Elements with a name are known by that.
func flat(at string, value any) map[string]string {
	all := make(map[string]string)
	switch value := value.(type) {
	case map[string]any:
		for name, value := range value {
			maps.Copy(all, flat(strings.TrimPrefix(at+"."+name, "."), value))
		}
	case []any:
		for i, value := range value {
			place := fmt.Sprint(i)
			switch of, _ := value.(map[string]any); {
			case of["name"] != nil:
				place = fmt.Sprint(of["name"])
			case of["outcome"] != nil:
				place = fmt.Sprintf("%v/%v %v %v", of["server"], of["tool"], of["outcome"], of["delivery"])
			}
			maps.Copy(all, flat(at+"["+place+"]", value))
		}
	default:
		all[at] = encoded(value)
	}
	return all
}

// entryText shows what passes a link: what comes from the gateway is in the direction of the server.
func entryText(e transcript.Entry) string {
	sign := map[transcript.Kind]string{transcript.Sent: "<", transcript.Received: ">"}[e.Kind]
	if sign == "" {
		return strings.TrimSpace(fmt.Sprintf("= %s %s", e.Kind, reasonOf(e.Err)))
	}
	return strings.TrimSpace(sign + " " + frameText(e.Frame))
}

// frameText shows a frame as its id, its method or kind, and what belongs to that.
func frameText(frame []byte) string {
	m, err := jsonrpc.Decode(bytes.Clone(frame), jsonrpc.Limits{})
	if err != nil {
		return fmt.Sprintf("%q", frame)
	}
	text := m.Method + " " + sorted(m.Params)
	if m.Error != nil {
		text = fmt.Sprintf("error %d %s %s", m.Error.Code, m.Error.Message, m.Error.Data)
	} else if m.Method == "" {
		text = "result " + sorted(m.Result)
	}
	if !m.ID.IsZero() {
		text = m.ID.String() + " " + text
	}
	return text
}

// sorted returns an object with the members of its _meta, which have no order, in one.
func sorted(object json.RawMessage) string {
	var of struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(object, &of) != nil || of.Meta == nil {
		return string(object)
	}
	return strings.Replace(string(object), string(of.Meta), encoded(valueOf(of.Meta)), 1)
}

// logged notes what is logged.
type logged struct {
	s    *scene.Scene
	with string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	text := fmt.Sprintf("%s %s%s", r.Level, r.Message, l.with)
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.s.Note("log", text)
	return nil
}

func (l *logged) WithAttrs(all []slog.Attr) slog.Handler {
	with := l.with
	for _, a := range all {
		with += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &logged{l.s, with}
}

func (l *logged) WithGroup(name string) slog.Handler { return &logged{l.s, l.with + " " + name + ":"} }
