package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// An inquiry is a server whose tools ask twice, and a user who repeats what is asked.
type inquiry struct {
	*server.Server
	mu    sync.Mutex
	runs  map[string]int // handlers begun, by tool and call
	asked map[string]int // questions that the user saw, by text
	open  int            // handlers that run
	wrong []string
}

type reply struct {
	Text string `json:"text"`
}

type numbered struct {
	N int `json:"n"`
}

func newInquiry() *inquiry {
	q := &inquiry{
		Server: server.New(protocol.Implementation{Name: "inquiry", Version: "1"}, server.Options{Asking: server.AskingOptions{Expiry: time.Minute}}),
		runs:   make(map[string]int), asked: make(map[string]int),
	}
	needs := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}
	for tool, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		server.AddTool(q.Server, protocol.Tool{Name: tool}, func(ctx context.Context, in numbered) (int, error) {
			q.note(func() { q.runs[fmt.Sprint(tool, in.N)]++; q.open++ })
			defer q.note(func() { q.open-- })
			for step := range 2 {
				question := fmt.Sprintf("question %d of call %d", step+1, in.N)
				answer, err := server.Elicit[reply](ctx, question)
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

func (q *inquiry) note(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do()
}

// repeat is the user, who takes two seconds over every third question.
func (q *inquiry) repeat(ctx context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
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
	return client.Accept(reply{p.Message})
}

// Links are lost, and frames, while calls ask: in 2025-11-25 by requests within the call,
// in 2026-07-28 by rounds of it. Each call has one outcome, each question at most one
// showing and its own answer, and no handler, place or request is left.
//
// Guarantees: G-0031.1, G-0031.9
func TestCallsThatAskSurviveABadConnection(t *testing.T) {
	for _, revision := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, tool := range []string{"waits", "reruns"} {
			answered, failed := 0, 0
			for seed := range uint64(15) {
				synctest.Test(t, func(t *testing.T) {
					a, f := inquire(t, revision, tool, seed)
					answered, failed = answered+a, failed+f
				})
			}
			if answered < 50 || failed < 10 {
				t.Errorf("%s, %s: %d calls were answered and %d failed, so too little was tried", revision, tool, answered, failed)
			}
		}
	}
}

func inquire(t *testing.T, revision, tool string, seed uint64) (answered, failed int) {
	const calls = 20
	q := newInquiry()
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
		Conn:  conn.Options{BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond},
	})
	session, err := c.Connect(t.Context(), specification.WatchClient(t, bad))
	if err != nil {
		t.Fatal(err)
	}
	var calling sync.WaitGroup
	for n := range calls {
		calling.Go(func() {
			got, err := client.Call[int](t.Context(), session, tool, numbered{n})
			q.note(func() {
				switch {
				case err == nil && got != n:
					q.wrong = append(q.wrong, fmt.Sprintf("call %d got the result of %d", n, got))
				case err == nil:
					answered++
				case client.NotExecuted(err) && q.runs[fmt.Sprint(tool, n)] > 0:
					q.wrong = append(q.wrong, fmt.Sprintf("call %d ran, and was told not to: %v", n, err))
				default:
					failed++
				}
			})
		})
	}
	calling.Wait()
	leave := time.NewTimer(2 * time.Hour) // questions expire, and what is remembered is forgotten
	<-leave.C
	synctest.Wait()
	for _, wrong := range q.wrong {
		t.Errorf("%s, seed %d: %s", revision, seed, wrong)
	}
	for question, n := range q.asked {
		if n > 1 {
			t.Errorf("%s, %s, seed %d: the user saw %s %d times", revision, tool, seed, question, n)
		}
	}
	for call, n := range q.runs {
		if most := map[string]int{"waits": 1, "reruns": 3}[tool]; n > most {
			t.Errorf("%s, seed %d: %s ran %d times", revision, seed, call, n)
		}
	}
	if q.open != 0 || session.Conn().Stats().Depths != (conn.Depths{}) {
		t.Errorf("%s, seed %d: %d handlers are left, and %+v", revision, seed, q.open, session.Conn().Stats().Depths)
	}
	c.Close(context.Background())
	q.Close(context.Background())
	return answered, failed
}

// A call that has become a task was executed, although asking for the task is refused.
//
// Guarantees: G-0031.9
func TestACallThatBecameATaskIsNotSaidToBeUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(server.TaskOptions{PollInterval: 7 * time.Second})
		f.visit(t, client.Options{Elicit: agree}, fault.Plan{}, func(s *client.Session) {
			over := make(chan error, 1)
			go func() {
				_, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "make", Arguments: mustMarshal(job{"chair", 60})})
				over <- err
			}()
			synctest.Wait() // it is a task, and is waited for
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-over; !errors.Is(err, client.ErrClosed) || client.NotExecuted(err) {
				t.Errorf("got %v, which may be called again: %v", err, client.NotExecuted(err))
			}
		})
	})
}
