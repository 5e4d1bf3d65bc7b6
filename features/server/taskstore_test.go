package server_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// taskOf returns the record of a task whose result has size bytes.
func taskOf(owner, client, id string, size int) *server.TaskRecord {
	return &server.TaskRecord{
		Owner: owner, Client: client, Expires: time.Now().Add(time.Hour),
		Task: protocol.DetailedTask{Task: protocol.Task{TaskID: id}, FinalResult: json.RawMessage(strings.Repeat("a", size))},
	}
}

// One client can use a quarter of the store at most. What it deletes is free again.
//
// Guarantees: G-0032.5
func TestOneClientCannotFillTheTaskStore(t *testing.T) {
	store := &server.MemoryTaskStore{MaxBytes: 64 << 10}
	save := func(r *server.TaskRecord) error { return store.Save(t.Context(), r) }
	for _, r := range []*server.TaskRecord{
		taskOf("eve", "eve", "1", 8<<10), taskOf("eve", "eve", "2", 100), taskOf("", "1.2.3.4", "3", 15<<10),
		taskOf("1.2.3.4", "1.2.3.4", "4", 15<<10), // an identity that looks like an address is another client
	} {
		if err := save(r); err != nil {
			t.Errorf("%s: %v", r.Task.TaskID, err)
		}
	}
	for _, id := range []string{"2", "5"} {
		if err := save(taskOf("eve", "eve", id, 8<<10)); !errors.Is(err, server.ErrTaskStoreFull) || !strings.Contains(err.Error(), "this client") {
			t.Errorf("%s: got %v, want the error %v and %q in it", id, err, server.ErrTaskStoreFull, "this client")
		}
	}
	if err := save(taskOf("ada", "ada", "6", 8<<10)); err != nil {
		t.Error("another client: got no place, want one:", err)
	}
	if err := errors.Join(store.Delete(t.Context(), "1"), save(taskOf("eve", "eve", "2", 8<<10))); err != nil {
		t.Error("after a deletion: got no place, want one:", err)
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
