package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// An endsWorld is a server whose tools ask, its clients, and their users. Handlers and users lock it; the model does what it does
// while nobody else runs.
type endsWorld struct {
	*server.Server
	mu      sync.Mutex
	calls   []*endsCall
	sides   []*endsSide
	prompts []*endsPrompt
	serving sync.WaitGroup
}

// An endsPrompt is a question that a user sees.
type endsPrompt struct {
	side  *endsSide
	label string     // that of the question
	id    jsonrpc.ID // of the request that brought it
	reply chan string
}

// questionLabel is the member of _meta that names a question for roots, which has no text.
const questionLabel = "test/label"

type (
	labelKey    struct{}
	questionKey struct{}
)

// endsWays are the tools, and whether they need a task.
var endsWays = map[string]bool{"waits": false, "reruns": false, "explicit": false, "taskwaits": true, "taskreruns": true, "taskexplicit": true}

var endsLimits = server.AskingOptions{Expiry: 10*time.Minute + 2*time.Second, CallExpiry: 100 * time.Hour, MaxWaiting: 3}

const mostTasks = 3

func newEndsWorld() *endsWorld {
	w := new(endsWorld)
	w.Server = newServer(server.Options{
		Asking: endsLimits, Middleware: []server.Middleware{w.overhear},
		Tasks: &server.TaskOptions{Legacy: true, TTL: 1000 * time.Hour, PollInterval: 2 * time.Second, MaxRunning: mostTasks},
	})
	for way, isTask := range endsWays {
		tool := protocol.Tool{Name: way}
		if isTask {
			tool.Execution = &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}
		}
		how, follow := []server.FeatureOption{server.Asks(server.Waits, forms)}, w.follow
		switch {
		case strings.HasSuffix(way, "reruns"):
			how = []server.FeatureOption{server.Asks(server.Reruns, forms)}
		case strings.HasSuffix(way, "explicit"):
			how, follow = nil, w.followExplicitly
		}
		server.AddTool(w.Server, tool, func(ctx context.Context, in script) (string, error) {
			c := w.enter(ctx, in)
			err := errors.New("the handler has not returned")
			defer func() { w.leave(c, err) }()
			var text string
			text, err = follow(ctx, c, in)
			return text, err
		}, how...)
	}
	return w
}

func (w *endsWorld) enter(ctx context.Context, in script) *endsCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[in.N]
	c.runs++
	c.running++
	c.session = server.RequestFrom(ctx).Session
	return c
}

func (w *endsWorld) leave(c *endsCall, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.running--
	if c.ended = err; err == nil {
		c.finished++
	}
}

// follow asks what the steps say, and returns the answers.
func (w *endsWorld) follow(ctx context.Context, c *endsCall, in script) (string, error) {
	said := []string{}
	for i, step := range in.Steps {
		var text string
		var err error
		switch step {
		case 'w':
			text, err = w.work(ctx, c, i)
		case 'c':
			text, err = "yes", server.Confirm(ctx, label(in.N, i, ""))
		case 's':
			var message *protocol.CreateMessageResult
			if message, err = server.Sample(ctx, labelled(in.N, i, step)[fmt.Sprint("k", i)].(*protocol.CreateMessageParams)); err == nil {
				text = message.Content.Text()
			}
		default:
			var answers protocol.InputResponses
			answers, err = server.Ask(ctx, labelled(in.N, i, step))
			text = stepText(step, i, answers)
		}
		if text, err = answered(text, err); err != nil {
			return "", err
		}
		said = append(said, text)
	}
	return strings.Join(said, " "), nil
}

// followExplicitly does what follow does, by returning InputRequired. Its questions have the same keys in each round.
func (w *endsWorld) followExplicitly(ctx context.Context, c *endsCall, in script) (string, error) {
	r, said := server.RequestFrom(ctx), []string{}
	if later, err := r.State(&said); err != nil {
		return "", err
	} else if i := len(said); later {
		said = append(said, stepText(rune(in.Steps[i]), 0, r.Answers))
	}
	for i := len(said); i < len(in.Steps); i++ {
		if in.Steps[i] != 'w' {
			asked := make(protocol.InputRequests)
			for key, q := range labelled(in.N, i, rune(in.Steps[i])) {
				asked["k0"+strings.TrimPrefix(key, fmt.Sprint("k", i))] = q
			}
			return "", &server.InputRequired{Requests: asked, State: said}
		}
		text, err := w.work(ctx, c, i)
		if err != nil {
			return "", err
		}
		said = append(said, text)
	}
	return strings.Join(said, " "), nil
}

// work waits until the model lets the handler go on.
func (w *endsWorld) work(ctx context.Context, c *endsCall, i int) (string, error) {
	select {
	case <-w.gate(c, i):
		return "worked", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// gate returns the channel that is closed when step i has been worked on.
func (w *endsWorld) gate(c *endsCall, i int) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(c.gates) <= i {
		c.gates = append(c.gates, make(chan struct{}))
	}
	return c.gates[i]
}

func label(n, i int, which string) string { return fmt.Sprintf("%d/%d/%s", n, i, which) }

// labelled returns the questions of a step. Each says which one it is.
func labelled(n, i int, step rune) protocol.InputRequests {
	all := stepRequests(step, i)
	for key, q := range all {
		of := label(n, i, strings.TrimPrefix(key, fmt.Sprint("k", i)))
		switch q := q.(type) {
		case *protocol.ElicitParams:
			if q.Message = of; q.Mode == protocol.ElicitURL {
				q.ElicitationID = of
			}
		case *protocol.CreateMessageParams:
			q.Messages[0].Content = protocol.SamplingContents{protocol.Text(of)}
		case *protocol.ListRootsParams:
			q.SetMeta(questionLabel, json.RawMessage(fmt.Sprintf("%q", of)))
		}
	}
	return all
}

// overhear notes the states and tasks that clients get.
func (w *endsWorld) overhear(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		result, err := next(ctx, r)
		params, ok := r.Params.(*protocol.CallToolParams)
		if !ok || err != nil {
			return result, err
		}
		var in script
		if err := json.Unmarshal(params.Arguments, &in); err != nil {
			return nil, err
		}
		called := result.(*protocol.CallToolResult)
		w.mu.Lock()
		defer w.mu.Unlock()
		c := w.calls[in.N]
		if asks := called.InputRequired; asks != nil {
			c.states, c.open = append(c.states, *asks.RequestState), slices.Sorted(maps.Keys(asks.InputRequests))
		}
		if called.Task != nil {
			c.task = called.Task.TaskID
		}
		return result, err
	}
}

// An endsSide is a session, and the user in front of it.
type endsSide struct {
	*client.Session
	world    *endsWorld
	name     string
	identity string
	modern   bool
	c        *client.Client

	// Guarded by world.mu.
	near, far transport.Link
	responses []string // what it has sent on this link
	pages     []string // on which the user has finished, as its server says
}

func (w *endsWorld) addSide(t *rapid.T, identity string, modern bool) {
	s := &endsSide{world: w, name: fmt.Sprint(identity, " ", len(w.sides)), identity: identity, modern: modern}
	w.sides = append(w.sides, s)
	s.connect(t)
}

func (s *endsSide) connect(t *rapid.T) {
	version := protocol.Version20251125
	if s.modern {
		version = protocol.Latest
	}
	s.c = client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: version, Tasks: true, Middleware: []client.Middleware{s.label}, OnEvent: s.learn,
		Elicit: s.elicit, ElicitURL: s.elicit, Sample: s.sample, Roots: s.roots, Calls: client.CallOptions{Timeout: -1},
		Conn: conn.Tuning{BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)},
	})
	var err error
	if s.Session, err = s.c.Connect(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ListTools(context.Background(), nil); err != nil { // so it knows which tools need a task
		t.Fatal(err)
	}
}

// Open implements transport.Transport.
func (s *endsSide) Open(context.Context) (transport.Link, error) {
	ours, theirs := inmem.Pipe(inmem.Options{})
	s.world.serving.Go(func() {
		_ = s.world.ServeLink(context.Background(), peertest.From(&transport.Origin{Identity: s.identity}, theirs)) // it ends with the link
	})
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.near, s.far, s.responses = &notingLink{ours, s}, theirs, nil
	return s.near, nil
}

// A notingLink notes the responses that a client sends.
type notingLink struct {
	transport.Link
	of *endsSide
}

func (l *notingLink) Send(o transport.Outbound) error {
	if o.Route.Kind == jsonrpc.KindResult {
		l.of.world.mu.Lock()
		l.of.responses = append(l.of.responses, string(o.Frame))
		l.of.world.mu.Unlock()
	}
	return l.Link.Send(o)
}

// label notes which question a handler is asked.
func (s *endsSide) label(next client.Handler) client.Handler {
	return func(ctx context.Context, r *client.Request) (any, error) {
		if r.Incoming && !r.Notification {
			ctx = context.WithValue(ctx, questionKey{}, r.QuestionID())
		}
		if params, ok := r.Params.(*protocol.ListRootsParams); ok {
			ctx = context.WithValue(ctx, labelKey{}, strings.Trim(string(params.Meta[questionLabel]), `"`))
		}
		return next(ctx, r)
	}
}

func (s *endsSide) learn(_ context.Context, _ *client.Session, e client.Event) {
	if page, ok := e.(*client.ElicitationComplete); ok {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		s.pages = append(s.pages, page.ID)
	}
}

func (s *endsSide) elicit(ctx context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return askUser(ctx, s, p.Message, new(protocol.ElicitResult))
}

func (s *endsSide) sample(ctx context.Context, _ *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	return askUser(ctx, s, p.Messages[0].Content.Text(), new(protocol.CreateMessageResult))
}

func (s *endsSide) roots(ctx context.Context, _ *client.Session) ([]protocol.Root, error) {
	of, _ := ctx.Value(labelKey{}).(string)
	result, err := askUser(ctx, s, of, new(protocol.ListRootsResult))
	if err != nil {
		return nil, err
	}
	return result.Roots, nil
}

// askUser shows a question until the user has answered it, or nobody wants an answer.
func askUser[R any](ctx context.Context, s *endsSide, of string, into *R) (*R, error) {
	id, _ := ctx.Value(questionKey{}).(jsonrpc.ID)
	p := &endsPrompt{side: s, label: of, id: id, reply: make(chan string)}
	w := s.world
	w.mu.Lock()
	w.prompts = append(w.prompts, p)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.prompts = slices.DeleteFunc(w.prompts, func(other *endsPrompt) bool { return other == p })
	}()
	select {
	case reply := <-p.reply:
		if reply == "" {
			return nil, errors.New("not now")
		}
		return into, protocol.Unmarshal([]byte(reply), into)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
