package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A questionServer is a server whose tools ask two questions, and a user who repeats each
// question as the answer.
type questionServer struct {
	*server.Server
	mu    sync.Mutex
	runs  map[string]int // how often a handler began, by tool and call
	asked map[string]int // how often the user saw a question, by text
	open  int            // how many handlers run
	wrong []string
}

type questionResult struct {
	Text string `json:"text"`
}

type callNumber struct {
	N int `json:"n"`
}

func newQuestionServer() *questionServer {
	q := &questionServer{
		Server: server.New(protocol.Implementation{Name: "inquiry", Version: "1"}, server.Options{Asking: server.AskingOptions{Expiry: time.Minute}}),
		runs:   make(map[string]int), asked: make(map[string]int),
	}
	needs := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}
	for tool, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		server.AddTool(q.Server, protocol.Tool{Name: tool}, func(ctx context.Context, in callNumber) (int, error) {
			q.note(func() { q.runs[fmt.Sprint(tool, in.N)]++; q.open++ })
			defer q.note(func() { q.open-- })
			for step := range 2 {
				question := fmt.Sprintf("question %d of call %d", step+1, in.N)
				answer, err := server.Elicit[questionResult](ctx, question)
				if err != nil {
					return 0, err
				}
				if answer.Text != question {
					q.note(func() { q.wrong = append(q.wrong, question+" got the answer to "+answer.Text) })
				}
			}
			return in.N, nil
		}, server.Asks(how, needs))
	}
	return q
}

func (q *questionServer) note(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do()
}

// repeat answers for the user, who takes two seconds for every third question.
func (q *questionServer) repeat(ctx context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	slow := false
	q.note(func() {
		q.asked[p.Message]++
		slow = len(q.asked)%3 == 0
	})
	if slow {
		thinking := time.NewTimer(2 * time.Second)
		defer thinking.Stop()
		select {
		case <-thinking.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return client.Accept(questionResult{p.Message})
}

// Calls that ask questions survive lost links and lost frames: in 2025-11-25 with
// requests during the call, in 2026-07-28 with rounds. Each call has one outcome, each
// question is shown at most once and gets its own answer, and no handler, place or
// request is left.
//
// Guarantees: G-0031.1, G-0031.9
func TestCallsThatAskSurviveABadConnection(t *testing.T) {
	for _, revision := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, tool := range []string{"waits", "reruns"} {
			answered, failed := 0, 0
			for seed := range uint64(15) {
				synctest.Test(t, func(t *testing.T) {
					a, f := runQuestions(t, revision, tool, seed)
					answered, failed = answered+a, failed+f
				})
			}
			if answered < 50 || failed < 10 {
				t.Errorf("%s, %s: %d calls were answered and %d failed, want more of both", revision, tool, answered, failed)
			}
		}
	}
}

func runQuestions(t *testing.T, revision, tool string, seed uint64) (answered, failed int) {
	const calls = 20
	q := newQuestionServer()
	bad := fault.New(inmem.New(q.Accept, inmem.Options{}), fault.Plan{Seed: seed, Faults: []fault.Fault{
		{Kind: fault.Die, Direction: fault.Inbound, Probability: 0.02, After: 2},
		{Kind: fault.Die, Direction: fault.Outbound, Probability: 0.02, After: 2},
		{Kind: fault.Drop, Direction: fault.Inbound, Probability: 0.02, After: 2},
		{Kind: fault.Drop, Direction: fault.Outbound, Probability: 0.02, After: 2},
		{Kind: fault.Reorder, Direction: fault.Inbound, Probability: 0.05, Frames: 3, For: time.Second, After: 2},
	}})
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: revision, Elicit: q.repeat,
		Calls: client.CallOptions{WaitForReady: true, Timeout: 10 * time.Second},
		Conn:  conn.Tuning{BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond},
	})
	session, err := c.Connect(t.Context(), specification.WatchClient(t, bad))
	if err != nil {
		t.Fatal(err)
	}
	var calling sync.WaitGroup
	for n := range calls {
		calling.Go(func() {
			got, err := client.Call[int](t.Context(), session, tool, callNumber{n})
			q.note(func() {
				switch {
				case err == nil && got != n:
					q.wrong = append(q.wrong, fmt.Sprintf("call %d got the result of call %d", n, got))
				case err == nil:
					answered++
				case client.NotExecuted(err) && q.runs[fmt.Sprint(tool, n)] > 0:
					q.wrong = append(q.wrong, fmt.Sprintf("call %d ran, and got an error that says it was not executed: %v", n, err))
				default:
					failed++
				}
			})
		})
	}
	calling.Wait()
	leave := time.NewTimer(2 * time.Hour) // until questions have expired and the server has forgotten the calls
	<-leave.C
	synctest.Wait()
	for _, wrong := range q.wrong {
		t.Errorf("%s, seed %d: %s", revision, seed, wrong)
	}
	for question, n := range q.asked {
		if n > 1 {
			t.Errorf("%s, %s, seed %d: the user saw %s %d times, want 1 at most", revision, tool, seed, question, n)
		}
	}
	for call, n := range q.runs {
		if most := map[string]int{"waits": 1, "reruns": 3}[tool]; n > most {
			t.Errorf("%s, seed %d: %s ran %d times, want 1 at most", revision, seed, call, n)
		}
	}
	if q.open != 0 || session.Conn().Stats().Depths != (conn.Depths{}) {
		t.Errorf("%s, seed %d: %d handlers and the depths %+v are left, want none", revision, seed, q.open, session.Conn().Stats().Depths)
	}
	c.Close(context.Background())
	q.Close(context.Background())
	return answered, failed
}

// If a call has become a task but the poll of the task is refused, the error does not
// say that the call was not executed.
//
// Guarantees: G-0031.9
func TestCallThatBecameATaskCountsAsExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTaskServer(server.TaskOptions{PollInterval: 7 * time.Second})
		f.withClient(t, client.Options{Elicit: acceptAll}, fault.Plan{}, func(s *client.Session) {
			over := make(chan error, 1)
			go func() {
				_, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "make", Arguments: mustMarshal(job{"chair", 60})})
				over <- err
			}()
			synctest.Wait() // the call is a task, and the client waits for it
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-over; !errors.Is(err, client.ErrClosed) || client.NotExecuted(err) {
				t.Errorf("got %v with NotExecuted %v, want false", err, client.NotExecuted(err))
			}
		})
	})
}

// What a handler returns stays as it is, so that it may return the same for each question.
//
// Guarantees: G-0030.6
func TestAnswersOfHandlersAreNotChanged(t *testing.T) {
	const content, before = `{"ratio":0.5}`, protocol.Version20250618 // an answer of a model has one block in it
	form := &protocol.ElicitResult{Action: protocol.ElicitAccept, Content: json.RawMessage(content)}
	sampled := &protocol.CreateMessageResult{Role: "assistant", Model: "m", Content: protocol.SamplingContents{protocol.Text("a"), protocol.Text("b")}}
	o := client.Options{
		ProtocolVersion: before,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return form, nil
		},
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return sampled, nil
		},
	}
	if got, want := askedIn(t, before, o, protocol.MethodElicit, elicitForm), `{"action":"accept","content":{"count":2,"ratio":0.5,"size":"small"}}`; got != want {
		t.Errorf("got the answer %s, want %s", got, want)
	}
	if got := askedIn(t, before, o, protocol.MethodCreateMessage, sampleText); !strings.Contains(got, `"content":{"type":"text"`) {
		t.Errorf("got the answer %s, want one block", got)
	}
	if string(form.Content) != content || len(sampled.Content) != 2 {
		t.Errorf("the handlers have %s and %d blocks now, want %s and 2", form.Content, len(sampled.Content), content)
	}
}

// A later round has the state of the server's last answer, none if that had none, and never that which the caller began with.
//
// Guarantees: G-0030.6
func TestRoundsHaveTheStateOfTheServer(t *testing.T) {
	begun := "of the caller"
	for name, test := range map[string]struct{ asks, want string }{
		"a state":  {`{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"roots/list"}}}`, "s1"},
		"no state": {`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}`, ""},
	} {
		s := listenServer(acknowledgeOnly)
		s.on(protocol.MethodCallTool, func(f frame, before func(frame) []string) []string {
			if len(s.received(protocol.MethodCallTool)) == 1 {
				return []string{f.result(test.asks)}
			}
			return []string{f.result(`{"resultType":"complete","content":[]}`)}
		})
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, Roots: answers(new(atomic.Int64)).Roots})
		params := &protocol.CallToolParams{Name: "x", InputParams: protocol.InputParams{RequestState: &begun}}
		if _, err := session.CallTool(t.Context(), params); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, f := range s.received(protocol.MethodCallTool) {
			var sent struct{ RequestState string }
			if err := json.Unmarshal(f.Params, &sent); err != nil {
				t.Fatal(err)
			}
			got = append(got, sent.RequestState)
		}
		if !slices.Equal(got, []string{begun, test.want}) {
			t.Errorf("%s: got the states %q, want %q", name, got, []string{begun, test.want})
		}
	}
}
