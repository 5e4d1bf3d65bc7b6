package server

import (
	"context"
	"encoding/json"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// values are arguments of 16 KB that take more than turn.Small when they are decoded.
var values = []byte(`{"values":[` + strings.Repeat("0,", 8000) + "0]}")

type numbers struct {
	Values []int `json:"values"`
}

func openSession(t *testing.T, s *Server) *client.Session {
	t.Helper()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func callTool(ctx context.Context, session *client.Session, tool string, arguments []byte) error {
	_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: arguments})
	return err
}

// occupy makes others do as much large work as is possible, until it is ended.
func (s *Server) occupy(ctx context.Context) (end func()) {
	places := max(1, runtime.GOMAXPROCS(0)-1)
	stop, begun, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for i := range places {
		go func() {
			_ = s.turns.Do(ctx, sender{client: share.Client{Network: strconv.Itoa(i)}}, turn.Small+1, nil, func() { begun <- struct{}{}; <-stop })
			ended <- struct{}{}
		}()
	}
	for range places {
		<-begun
	}
	return func() {
		close(stop)
		for range places {
			<-ended
		}
	}
}

// Large arguments are decoded, and large results encoded, in turn. Small calls do not wait for them, and a call that was cancelled
// while it waits never reaches its handler.
//
// Guarantees: G-0085.3, G-0085.4, G-0085.8
func TestLargeCallsAreServedInTurn(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
		defer s.Close(t.Context())
		var reached atomic.Int32
		goOn := make(chan struct{})
		AddTool(s, protocol.Tool{Name: "sum"}, func(context.Context, numbers) (string, error) { reached.Add(1); return "", nil })
		AddTool(s, protocol.Tool{Name: "large"}, func(context.Context, struct{}) (string, error) {
			<-goOn
			return strings.Repeat("x", 2*turn.Small), nil
		})
		session := openSession(t, s)
		defer session.Close(t.Context())
		result := make(chan error, 1)
		go func() { result <- callTool(t.Context(), session, "large", nil) }()
		synctest.Wait()
		end := s.occupy(t.Context())
		close(goOn)
		kept := make(chan error, 1)
		go func() { kept <- callTool(t.Context(), session, "sum", values) }()
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { given <- callTool(ctx, session, "sum", values) }()
		synctest.Wait()
		cancel()
		if err := <-given; err == nil {
			t.Error("a cancelled call was answered")
		}
		if err := callTool(t.Context(), session, "sum", []byte(`{"values":[1]}`)); err != nil || reached.Load() != 1 {
			t.Errorf("a small call beside them: %v, and %d handlers were reached, want 1", err, reached.Load())
		}
		synctest.Wait()
		if len(result) > 0 || len(kept) > 0 {
			t.Error("large work was done while others did as much as is possible")
		}
		end()
		if err := <-kept; err != nil || reached.Load() != 2 {
			t.Errorf("large arguments in their turn: %v, and %d handlers were reached, want 2", err, reached.Load())
		}
		if err := <-result; err != nil {
			t.Errorf("a large result in its turn: %v", err)
		}
	})
}

// An exchangeInTurn is one of an endpoint that decides when the work of its clients is done.
type exchangeInTurn struct {
	transport.Exchange
	turns *turn.Scheduler[share.Client]
}

func (e exchangeInTurn) Turns() (*turn.Scheduler[share.Client], share.Client) {
	return e.turns, share.Client{Network: "a"}
}

// The work for requests of an endpoint that has turns itself takes those, and none of the server's.
//
// Guarantees: G-0085.3
func TestTheTurnsOfAnEndpointAreTaken(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
		defer s.Close(t.Context())
		AddTool(s, protocol.Tool{Name: "sum"}, func(_ context.Context, in numbers) (int, error) { return len(in.Values), nil })
		origin := &transport.Origin{RemoteAddr: "192.0.2.1:7", Exchange: exchangeInTurn{turns: turn.New[share.Client](2)}}
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Connect(t.Context(),
			inmem.New(func(link transport.Link) { s.Accept(peertest.From(origin, link)) }, inmem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(t.Context())
		end := s.occupy(t.Context())
		result := make(chan error, 1)
		go func() { result <- callTool(t.Context(), session, "sum", values) }()
		synctest.Wait()
		if len(result) == 0 {
			t.Error("a call waits for others that have taken the turns of the server")
		}
		end()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// Hundreds of tools that sleep, which large arguments were decoded for, delay no other call.
//
// Guarantees: G-0085.9
func TestToolsThatSleepHoldNoTurn(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const sleepers = 300
		s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{Conn: conn.Tuning{MaxServing: 2 * sleepers, MaxHeld: 1 << 30}})
		defer s.Close(t.Context())
		var asleep atomic.Int32
		wake := make(chan struct{})
		AddTool(s, protocol.Tool{Name: "sum"}, func(context.Context, numbers) (string, error) { return "", nil })
		AddTool(s, protocol.Tool{Name: "sleep"}, func(ctx context.Context, _ numbers) (string, error) {
			asleep.Add(1)
			return "", wait.Sleep(ctx, 10*time.Second)
		})
		session, other := openSession(t, s), openSession(t, s)
		defer session.Close(t.Context())
		defer other.Close(t.Context())
		for range sleepers {
			go func() {
				defer func() { wake <- struct{}{} }()
				if err := callTool(t.Context(), session, "sleep", values); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if asleep.Load() != sleepers {
			t.Errorf("%d tools sleep, want %d", asleep.Load(), sleepers)
		}
		begun := time.Now()
		for _, from := range []*client.Session{session, other} {
			for _, arguments := range [][]byte{values, []byte(`{"values":[]}`)} {
				if err := callTool(t.Context(), from, "sum", arguments); err != nil {
					t.Error(err)
				}
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("other calls took %v, want none of the time that the tools sleep", took)
		}
		for range sleepers {
			<-wake
		}
	})
}

// busyStore makes others take all turns when a task is saved first: the request was read then, its arguments were not.
type busyStore struct {
	MemoryTaskStore
	s    *Server
	once sync.Once
	end  func()
}

func (b *busyStore) Save(ctx context.Context, r *TaskRecord) error {
	b.once.Do(func() { b.end = b.s.occupy(context.WithoutCancel(ctx)) })
	return b.MemoryTaskStore.Save(ctx, r)
}

// Large arguments of a task are decoded in turn, although the call that has made the task was answered meanwhile.
//
// Guarantees: G-0085.3
func TestLargeArgumentsOfATaskWaitForTheirTurn(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := new(busyStore)
		s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{Tasks: &TaskOptions{Store: store}})
		store.s = s
		defer s.Close(t.Context())
		AddTool(s, protocol.Tool{Name: "sum", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(_ context.Context, in numbers) (int, error) { return len(in.Values), nil })
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{Tasks: true}).Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(t.Context())
		task, err := session.StartTool(t.Context(), &protocol.CallToolParams{Name: "sum", Arguments: values})
		if err != nil || task.ID() == "" {
			t.Fatalf("the call has become no task: %v", err)
		}
		synctest.Wait() // the request is over, and the arguments wait for their turn
		store.end()
		if result, err := task.Wait(t.Context()); err != nil || result.IsError {
			t.Errorf("got %v, %v", result, err)
		}
	})
}

// A large result that nobody decodes is encoded in turn, and room is reserved for all of it.
//
// Guarantees: G-0085.4
func TestLargeRawResultsWaitForTheirTurn(t *testing.T) {
	large := json.RawMessage(`{"content":[],"text":"` + strings.Repeat("x", 2*turn.Small) + `"}`)
	testenv.Bubble(t, func(t *testing.T) {
		s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{
			Capabilities: protocol.ServerCapabilities{Tools: new(protocol.ListCapability)},
			Route: map[string]RawHandler{protocol.MethodCallTool: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return large, nil
			}},
		})
		defer s.Close(t.Context())
		session := openSession(t, s)
		defer session.Close(t.Context())
		end := s.occupy(t.Context())
		result := make(chan error, 1)
		go func() { result <- callTool(t.Context(), session, "large", nil) }()
		synctest.Wait()
		if len(result) > 0 {
			t.Error("large work was done while others did as much as is possible")
		}
		end()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	c := &call{result: large}
	if size := c.SizeJSON(); size < len(large) {
		t.Errorf("room for %d bytes is reserved, and the result has %d", size, len(large))
	}
}
