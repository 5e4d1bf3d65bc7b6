package server

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// An explainingStore says more of its errors than they are.
type explainingStore struct{ MemoryTaskStore }

func (s *explainingStore) Load(ctx context.Context, id string) (*TaskRecord, error) {
	r, err := s.MemoryTaskStore.Load(ctx, id)
	if err != nil {
		err = fmt.Errorf("the store: %w", err)
	}
	return r, err
}

// A watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	watchers int
}

func (*watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(func()) (stop func() bool) {
	w.watchers++
	return func() bool { w.watchers--; return true }
}

// What the program was told of a client that has left stays behind in no context of the server.
func TestCallbacksAtTheEndLeaveTheContextOfTheServer(t *testing.T) {
	ctx := &watchedContext{Context: t.Context()}
	h := &host{ctx: ctx}
	_, end := h.afterwards(t.Context())
	if ctx.watchers != 1 {
		t.Errorf("%d functions wait for the end of the server during a callback, want 1", ctx.watchers)
	}
	if end(); ctx.watchers != 0 {
		t.Errorf("%d functions wait for the end of the server after the callback, want none", ctx.watchers)
	}
}

// After a task of a legacy client has ended or expired, nothing of the client's session remembers it.
func TestEndedTasksAreNotWatched(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := New(protocol.Implementation{}, Options{Tasks: &TaskOptions{Legacy: true, TTL: time.Hour, Store: new(explainingStore)}})
		p := &peer{server: &s.host}
		p.changes.Use(p.sendChanges)
		s.subscriptions.Add(&p.changes)
		for name, end := range map[string]func(id string){
			"completed": func(id string) { keepTask(t, s, id, protocol.TaskCompleted) },
			"failed":    func(id string) { keepTask(t, s, id, protocol.TaskFailed) },
			"cancelled": func(id string) { keepTask(t, s, id, protocol.TaskCancelled) },
			"unknown":   func(id string) { _ = s.tasks.options.Store.Delete(context.Background(), id) },
		} {
			keepTask(t, s, name, protocol.TaskWorking)
			s.tasks.watch(p, name)
			if _, err := s.tasks.statusOf(context.Background(), p, name); err != nil || s.subscriptions.Watched() != 1 || !p.changes.Wants(changes.Task(name)) {
				t.Errorf("%s, while it runs: %d tasks are watched, want 1", name, s.subscriptions.Watched())
			}
			end(name)
			_, _ = s.tasks.statusOf(context.Background(), p, name)
			if s.subscriptions.Watched() != 0 || p.changes.Wants(changes.Task(name)) {
				t.Errorf("%s: %d tasks are watched, and the session wants it: %t, want neither", name, s.subscriptions.Watched(), p.changes.Wants(changes.Task(name)))
			}
		}
	})
}

func keepTask(t *testing.T, s *Server, id string, status protocol.TaskStatus) {
	t.Helper()
	err := s.tasks.options.Store.Save(context.Background(), &TaskRecord{
		Task: protocol.DetailedTask{Task: protocol.Task{TaskID: id, Status: status}}, Created: time.Now(), Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What is zero or negative has the default that its comment says, and what the program sets stays.
func TestDefaultsAreAsDocumented(t *testing.T) {
	for name, n := range map[string]int{"zero": 0, "negative": -1, "set": 7} {
		d := time.Duration(n)
		s := New(protocol.Implementation{}, Options{
			PageSize: n, LogRate: n,
			Asking: AskingOptions{Expiry: d, CallExpiry: d, MaxRounds: n, MaxWaiting: n, MaxWaitingBytes: n},
			Tasks:  &TaskOptions{After: d, TTL: d, PollInterval: d, MaxRunning: n, MaxRunningBytes: n},
		})
		asking, tasks := s.rounds.options, s.tasks.options
		wantAsking := AskingOptions{
			Expiry: 600 * time.Second, CallExpiry: 3600 * time.Second, MaxRounds: 32, MaxWaiting: 1024, MaxWaitingBytes: 25_165_824,
		}
		wantTasks := TaskOptions{TTL: 86_400 * time.Second, PollInterval: 1000 * time.Millisecond, MaxRunning: 1024, MaxRunningBytes: 25_165_824}
		size, rate := 100, 100
		switch name {
		case "negative":
			rate = -1 // no limit
		case "set":
			size, rate = 7, 7
			wantAsking = AskingOptions{Expiry: 7, CallExpiry: 7, MaxRounds: 7, MaxWaiting: 7, MaxWaitingBytes: 7}
			wantTasks = TaskOptions{After: 7, TTL: 7, PollInterval: 7, MaxRunning: 7, MaxRunningBytes: 7}
		}
		if tasks.Store == nil {
			t.Errorf("%s: there is no store", name)
		}
		tasks.Store = nil
		if !reflect.DeepEqual(asking, wantAsking) {
			t.Errorf("%s: got %+v, want %+v", name, asking, wantAsking)
		}
		if !reflect.DeepEqual(tasks, wantTasks) {
			t.Errorf("%s: got %+v, want %+v", name, tasks, wantTasks)
		}
		if s.options.PageSize != size || s.options.LogRate != rate {
			t.Errorf("%s: got the page size %d and the log rate %d, want %d and %d", name, s.options.PageSize, s.options.LogRate, size, rate)
		}
		if got := s.drainGrace(); got != 5*time.Second {
			t.Errorf("%s: got the grace %v, want 5s", name, got)
		}
	}
	s := New(protocol.Implementation{}, Options{MaxMemory: 48 << 20, Tasks: &TaskOptions{}})
	if got := [...]int{s.MaxMemory(), s.rounds.options.MaxWaitingBytes, s.tasks.options.MaxRunningBytes, s.tasks.options.Store.(*MemoryTaskStore).MaxBytes}; got != [...]int{48 << 20, 3 << 20, 3 << 20, 2 << 20} {
		t.Errorf("with 48 MiB in all got %d", got)
	}
	if of := (share.Client{Identity: "a"}); !s.tasks.Places.Bytes.Take(of, 1<<20) || s.tasks.Places.Bytes.Take(of, 1<<20) {
		t.Error("what one client may have of a small MaxMemory is not limited")
	}
	if s := New(protocol.Implementation{}, Options{PageSize: protocol.MaxItems + 1}); s.options.PageSize != protocol.MaxItems {
		t.Errorf("got pages of %d, want %d", s.options.PageSize, protocol.MaxItems)
	}
}
