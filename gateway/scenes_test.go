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
	"regexp"
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
	{"modern", "Two clients of 2026-07-28 at servers of both eras", playModern},
	{"questions", "Clients of both eras are asked by servers of both eras", playQuestions},
	{"tasks", "Tasks of both eras", playTasks},
	{"away", "Servers that die, are away, are late, and answer what they must not", playAway},
	{"files", "Files with other servers, servers that start on demand, and files with mistakes", playFiles},
	{"names", "What servers offer, and what clients see of it", playNames},
	{"users", "Users with a policy, pins and limits", playUsers},
	{"shares", "Connections of clients, users and all", playShares},
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
	loose   bool                           // servers are asked for several things at once: their requests have no order, and no numbers
}

// open makes the gateway, and applies a file.
func (s *stage) open(file string) {
	s.Once(`\{"io\.modelcontextprotocol/clientCapabilities":.*?"io\.modelcontextprotocol/protocolVersion":"[^"]*"`, "meta")
	s.Mask(`"requestState":"([^"]+)"`, "state")
	s.Mask(`[^\s"=]*TestScenes\w*[\\/]+\d+`, "folder")
	s.Mask(`[A-Z2-7]{26}`, "random")
	s.Places("ada", "bob", "gateway", "a", "b", "c", "tool of a", "tool of b", "log", "audit", "report", "metrics")
	if s.loose {
		s.Mixed("a", "b", "c", "ada", "bob")
	}
	s.Mixed("log", "audit", "tool of a", "tool of b")
	o := s.options
	o.Info.Version = "1"
	o.Client.Conn.Log = slog.New(slog.NewTextHandler(&diary{s.Scene}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
	o.Server.Conn.Log = o.Client.Conn.Log
	o.Audit = func(_ context.Context, r audit.Record) {
		s.Note("audit", strings.TrimSuffix(strings.TrimPrefix(encoded(r), `{"v":0,"n":0,`), `,"prev":""}`))
	}
	o.Digest = func(arguments []byte) string { return string(arguments) }
	o.Each = func(of *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion = s.backs[of.Name]
		o.Conn.BackoffJitter, o.Conn.ProvenAfter = 1e-30, 1000*time.Hour // nothing is random
		to := s.others[of.Name]
		if to == nil {
			to = (*place)(&struct {
				*fleet
				name string
			}{s.fleet, of.Name})
		}
		of.Transport = transcript.Tap(to, func(e transcript.Entry) { s.Note(of.Name, s.entryText(e)) })
	}
	s.step("The gateway starts")
	s.Gateway = gateway.New(o)
	s.applies(file)
	s.known["metrics"] = s.measured()
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
	synctest.Wait()
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

// breaks says whether a server cannot be reached from now on.
func (s *stage) breaks(name string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[name] = is
}

// does does what a person may do, and shows how that ended.
func (s *stage) does(server string, action admin.Action) {
	synctest.Wait()
	err := s.Do(context.Background(), server, action)
	synctest.Wait()
	s.Note("gateway", strings.TrimSpace(fmt.Sprintf("%s %s: %s", action, server, reasonOf(err))))
}

// detail shows what of the details of a server is not as it was shown last.
func (s *stage) detail(name string) {
	synctest.Wait()
	d, _ := s.Detail(name)
	now := flat("", valueOf([]byte(encoded(d))))
	delete(now, "at")
	s.differs("detail of "+name, now)
}

// metrics shows which lines of the metrics are not as they were shown last.
func (s *stage) metrics() { s.differs("metrics", s.measured()) }

func (s *stage) measured() map[string]string {
	synctest.Wait()
	w := httptest.NewRecorder()
	admin.New(&watched{s.Gateway, s}).Local().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	now := make(map[string]string)
	for line := range strings.Lines(w.Body.String()) {
		i := strings.LastIndexByte(line, ' ')
		now[line[:i]] = strings.TrimSpace(line[i:])
	}
	return now
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
	var at, text string // what has come or gone in one place is in one line
	flush := func() {
		if text != "" {
			s.Note(what, at+text)
		}
		text = ""
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, had := before[name]
		is, has := now[name]
		if had && has {
			if was != is {
				flush()
				s.Note(what, fmt.Sprintf("%s: %s, then %s", name, was, is))
			}
			continue
		}
		i := strings.LastIndexByte(name, '.') + 1
		if name[:i] != at {
			flush()
		}
		at = name[:i]
		if text += " " + name[i:] + "=" + is; !has {
			text += "(gone)"
		}
	}
	flush()
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

// numbers are those that the gateway and its servers give.
var numbers = regexp.MustCompile(`^()\d+|("(?:progressToken|requestId|io.modelcontextprotocol/subscriptionId)":)\d+`)

// entryText shows what passes a link: what comes from the gateway is in the direction of the server.
func (s *stage) entryText(e transcript.Entry) string {
	sign := map[transcript.Kind]string{transcript.Sent: "<", transcript.Received: ">"}[e.Kind]
	if sign == "" {
		return strings.TrimSpace(fmt.Sprintf("= %s %s", e.Kind, reasonOf(e.Err)))
	}
	text := frameText(e.Frame)
	if s.loose {
		text = numbers.ReplaceAllString(text, "${1}${2}N")
	}
	return strings.TrimSpace(sign + " " + text)
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

// A diary notes what is logged.
type diary struct{ *scene.Scene }

func (d *diary) Write(line []byte) (int, error) {
	d.Note("log", strings.TrimSpace(string(line)))
	return len(line), nil
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}
