package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// taskOf returns the record of a task whose result has size bytes.
func taskOf(owner, client, id string, size int) *server.TaskRecord {
	return &server.TaskRecord{
		Owner: owner, Client: client, Expires: time.Now().Add(time.Hour),
		Task: protocol.DetailedTask{Task: protocol.Task{TaskID: id, Status: protocol.TaskCompleted}, FinalResult: json.RawMessage(strings.Repeat("a", size))},
	}
}

// tasksOf returns n small tasks of a client.
func tasksOf(client string, n int) (all []*server.TaskRecord) {
	for i := range n {
		all = append(all, taskOf(client, client, fmt.Sprint(i), 1))
	}
	return all
}

// One client can use as much of the store as is free then. What it deletes is free again.
//
// Guarantees: G-0032.5
func TestOneClientCannotFillTheTaskStore(t *testing.T) {
	store := &server.MemoryTaskStore{MaxBytes: 64 << 10}
	save := func(r *server.TaskRecord) error { return store.Save(t.Context(), r) }
	for _, r := range []*server.TaskRecord{
		taskOf("eve", "eve", "1", 8<<10), taskOf("eve", "eve", "2", 100), taskOf("eve", "eve", "7", 8<<10), taskOf("eve", "eve", "8", 4<<10), taskOf("", "1.2.3.4", "3", 15<<10),
		taskOf("1.2.3.4", "1.2.3.4", "4", 15<<10), // an identity that looks like an address is another client
	} {
		if err := save(r); err != nil {
			t.Errorf("%s: %v", r.Task.TaskID, err)
		}
	}
	if err := save(taskOf("eve", "eve", "5", 8<<10)); !errors.Is(err, server.ErrTaskStoreFull) || !strings.Contains(err.Error(), "this client") {
		t.Errorf("got %v, want the error %v and %q in it", err, server.ErrTaskStoreFull, "this client")
	}
	if err := errors.Join(save(taskOf("eve", "eve", "1", 8<<10)), save(taskOf("eve", "eve", "2", 1<<10))); err != nil {
		t.Error("a task that is there has no room to be saved again:", err)
	}
	if err := save(taskOf("ada", "ada", "6", 4<<10)); err != nil {
		t.Error("another client: got no place, want one:", err)
	}
	for _, id := range []string{"1", "7", "8"} {
		if err := store.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(save(taskOf("eve", "eve", "2", 8<<10))); err != nil {
		t.Error("after a deletion: got no place, want one:", err)
	}
}

// The limits of a store are exact, and each names itself. A task that is saved again, or gets smaller, needs no place.
//
// Guarantees: G-0032.5
func TestLimitsOfTheTaskStore(t *testing.T) {
	each := taskOf("ada", "ada", "1", 100).Size()
	for name, test := range map[string]struct {
		store *server.MemoryTaskStore
		saves []*server.TaskRecord // all but the last fit
		fails string               // "": so does the last
	}{
		"as many as allowed":      {&server.MemoryTaskStore{MaxTasks: 2}, []*server.TaskRecord{taskOf("a", "a", "1", 1), taskOf("b", "b", "2", 1)}, ""},
		"one more":                {&server.MemoryTaskStore{MaxTasks: 2}, []*server.TaskRecord{taskOf("a", "a", "1", 1), taskOf("b", "b", "2", 1), taskOf("c", "c", "3", 1)}, "it has 2 tasks"},
		"the same again":          {&server.MemoryTaskStore{MaxTasks: 1}, []*server.TaskRecord{taskOf("a", "a", "1", 1), taskOf("a", "a", "1", 9)}, ""},
		"as many of a client":     {&server.MemoryTaskStore{MaxTasks: 100}, tasksOf("a", 38), ""},
		"one more of a client":    {&server.MemoryTaskStore{MaxTasks: 100}, tasksOf("a", 39), "it has 38 tasks, and this client has its share"},
		"a quarter":               {&server.MemoryTaskStore{MaxBytes: 4 * each}, []*server.TaskRecord{taskOf("ada", "ada", "1", 100)}, ""},
		"more than a quarter":     {&server.MemoryTaskStore{MaxBytes: 4 * each}, []*server.TaskRecord{taskOf("ada", "ada", "1", 100), taskOf("ada", "ada", "2", 100)}, fmt.Sprintf("its tasks have %d bytes, and this client has its share", each)},
		"all":                     {&server.MemoryTaskStore{MaxBytes: 4 * each}, []*server.TaskRecord{taskOf("ada", "ada", "1", 100), taskOf("bob", "bob", "2", 100), taskOf("eve", "eve", "3", 100), taskOf("joe", "joe", "4", 100)}, ""},
		"a byte more than all":    {&server.MemoryTaskStore{MaxBytes: 4*each + 3}, []*server.TaskRecord{taskOf("ada", "ada", "1", 100), taskOf("bob", "bob", "2", 100), taskOf("eve", "eve", "3", 100), taskOf("joe", "joe", "4", 100), taskOf("", "", "5", 0)}, fmt.Sprintf("its tasks have %d bytes", 4*each)},
		"smaller in a full store": {&server.MemoryTaskStore{MaxBytes: 4 * each}, []*server.TaskRecord{taskOf("ada", "ada", "1", 100), taskOf("ada", "ada", "1", 99), taskOf("ada", "ada", "1", 100)}, ""},
		"the default":             {&server.MemoryTaskStore{}, []*server.TaskRecord{taskOf("a", "a", "1", 6<<20)}, ""},
		"more than the default":   {&server.MemoryTaskStore{}, []*server.TaskRecord{taskOf("a", "a", "1", 7<<20)}, "this client has its share"},
	} {
		for i, r := range test.saves {
			err := test.store.Save(t.Context(), r)
			if fails := i == len(test.saves)-1 && test.fails != ""; (err != nil) != fails || fails && (!errors.Is(err, server.ErrTaskStoreFull) || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("%s, %d. save: got %v, want %q at the end", name, i+1, err, test.fails)
			}
		}
	}
}

// A store returns a task until it expires, whoever asks first, and what has expired takes no place. Tasks are listed by their age and then
// their id, after any of them.
func TestTasksInAStoreExpire(t *testing.T) {
	for name, look := range map[string]func(*testing.T, *server.MemoryTaskStore) bool{
		"Load": func(t *testing.T, store *server.MemoryTaskStore) bool {
			_, err := store.Load(t.Context(), "long")
			_, gone := store.Load(t.Context(), "short")
			return err == nil && errors.Is(gone, server.ErrNotFound)
		},
		"List": func(t *testing.T, store *server.MemoryTaskStore) bool {
			all, err := store.List(t.Context(), "ada", "", 10)
			return err == nil && len(all) == 1 && all[0].Task.TaskID == "long"
		},
		"Save": func(t *testing.T, store *server.MemoryTaskStore) bool {
			return store.Save(t.Context(), taskOf("ada", "ada", "more", 1)) == nil
		},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			store := &server.MemoryTaskStore{MaxTasks: 2}
			short, long := taskOf("ada", "ada", "short", 1), taskOf("ada", "ada", "long", 1)
			short.Expires = time.Now().Add(time.Minute)
			if err := errors.Join(store.Save(t.Context(), long), store.Save(t.Context(), short)); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute - 1)
			if all, err := store.List(t.Context(), "ada", "", 10); len(all) != 2 {
				t.Errorf("%s: before the end: got %v, %v, want both", name, all, err)
			}
			pass(1)
			if !look(t, store) {
				t.Errorf("%s: a task that has expired is still there", name)
			}
			pass(time.Hour)
			if all, err := store.List(t.Context(), "ada", "", 10); len(all) > 1 || err != nil {
				t.Errorf("%s: at last: got %v, %v, want no more than what was saved later", name, all, err)
			}
		})
	}
	store := new(server.MemoryTaskStore)
	began := time.Now()
	for id, age := range map[string]time.Duration{"d": 0, "c": time.Second, "a": time.Minute, "b": time.Second} {
		r := taskOf("ada", "ada", id, 1)
		r.Created = began.Add(-age)
		if err := store.Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for after, want := range map[string]string{"": "abc", "a": "bcd", "b": "cd", "d": ""} {
		all, err := store.List(t.Context(), "ada", after, 3)
		got := ""
		for _, r := range all {
			got += r.Task.TaskID
		}
		if got != want || err != nil {
			t.Errorf("after %q: got %q, %v, want %q", after, got, err, want)
		}
	}
	if _, err := store.List(t.Context(), "ada", "none", 3); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("after an unknown one: got %v, want %v", err, server.ErrNotFound)
	}
	r, _ := store.Load(t.Context(), "a")
	r.Tool = "changed"
	if again, err := store.Load(t.Context(), "a"); err != nil || again.Tool != "" {
		t.Errorf("a caller has changed the store: got %+v, %v", again, err)
	}
}

// The size of a task includes its questions.
//
// Guarantees: G-0032.5
func TestSizeOfATaskIncludesItsQuestions(t *testing.T) {
	r := taskOf("", "", "1", 0)
	before := r.Size()
	r.Task.InputRequests = protocol.InputRequests{"a": &protocol.ElicitParams{Message: strings.Repeat("a", 1000)}}
	if got := r.Size() - before; got < 1000 {
		t.Errorf("a question of 1,000 bytes adds %d bytes, want 1,000 at least", got)
	}
}

// However many clients store all they can, another client finds room.
//
// Guarantees: G-0083.6
func TestGreedyClientsLeaveRoomInTheTaskStore(t *testing.T) {
	for _, clients := range []int{4, 40} {
		store, stored := new(server.MemoryTaskStore), 0
		fill := func(client string) (n int) {
			for {
				stored++
				if err := store.Save(t.Context(), taskOf("", client, fmt.Sprint(stored), 100)); errors.Is(err, server.ErrTaskStoreFull) {
					return n
				} else if err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		for c := range clients {
			fill(fmt.Sprint("192.0.2.", c))
		}
		if n := fill("198.51.100.1"); n == 0 {
			t.Errorf("after %d greedy clients there is no room for another", clients)
		}
	}
}

// The size of a task has all in it that may be long.
//
// Guarantees: G-0032.5
func TestSizeOfATask(t *testing.T) {
	long := strings.Repeat("a", 10_000)
	empty := new(server.TaskRecord).Size()
	for what, change := range map[string]func(*server.TaskRecord){
		"id":     func(r *server.TaskRecord) { r.Task.TaskID = long },
		"status": func(r *server.TaskRecord) { r.Task.StatusMessage = long },
		"tool":   func(r *server.TaskRecord) { r.Tool = long },
		"owner":  func(r *server.TaskRecord) { r.Owner = long },
		"client": func(r *server.TaskRecord) { r.Client = long },
		"node":   func(r *server.TaskRecord) { r.Node = long },
		"result": func(r *server.TaskRecord) { r.Task.FinalResult = json.RawMessage(long) },
		"error":  func(r *server.TaskRecord) { r.Task.Error = &protocol.TaskError{Message: long} },
		"data":   func(r *server.TaskRecord) { r.Task.Error = &protocol.TaskError{Data: json.RawMessage(long)} },
		"question": func(r *server.TaskRecord) {
			r.Task.InputRequests = protocol.InputRequests{"q": &protocol.ElicitParams{Message: long}}
		},
	} {
		r := new(server.TaskRecord)
		change(r)
		if got := r.Size(); got < empty+len(long) {
			t.Errorf("%s: got a size of %d, want %d at least", what, got, empty+len(long))
		}
	}
}

// The store has what was saved: whoever changes a record that it has saved, loaded or listed changes nothing there.
func TestTheTaskStoreKeepsCopies(t *testing.T) {
	store := new(server.MemoryTaskStore)
	saved := taskOf("ada", "ada", "1", 1)
	if err := store.Save(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	loaded, err := store.Load(t.Context(), "1")
	listed, failed := store.List(t.Context(), "ada", "", 10)
	if err := errors.Join(err, failed); err != nil || len(listed) != 1 {
		t.Fatalf("got %d tasks, %v, want one", len(listed), err)
	}
	for _, r := range []*server.TaskRecord{saved, loaded, listed[0]} {
		r.Task.Status, r.Owner = protocol.TaskFailed, "eve"
	}
	if r, err := store.Load(t.Context(), "1"); err != nil || r.Task.Status != protocol.TaskCompleted || r.Owner != "ada" {
		t.Errorf("got %+v, %v, want what was saved", r, err)
	}
}
