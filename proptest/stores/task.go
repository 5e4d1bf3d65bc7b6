package stores

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/protocol"
)

// Tasks are the stores that TaskStoreContract checks. They have no task yet.
type Tasks struct {
	// A and B share their tasks, as two servers do. They may be the same.
	A, B server.TaskStore

	// MaxTasks is how many tasks the stores have room for. 0: it is not checked that a full
	// store refuses tasks.
	MaxTasks int
}

// TaskStoreContract checks the contract of server.TaskStore. If Tasks.MaxTasks is not 0, it
// must be at least 8; stores without such a limit need room for a few hundred tasks.
//
// A record comes back as it was saved, times to the nanosecond and JSON but for its white
// space. What a server does not change (see server.TaskStore) the suite does not change
// either. Ids that are saved have the form that a server gives them, but clients may ask for
// anything.
//
// Guarantees: G-0075.8
func TaskStoreContract(t *testing.T, open func(t *testing.T) Tasks, o proptest.ContractOptions) {
	with := func(t *testing.T, tb cleanupTB) *tasks { return openTasks(t, tb, open, o) }
	contract(t, with, []clause[*tasks]{
		{"a record comes back whole", (*tasks).recordsAreWhole},
		{"a record is replaced and deleted", (*tasks).recordsAreReplaced},
		{"a record does not change with the caller's", (*tasks).recordsAreCopies},
		{"ids and owners are told apart", (*tasks).idsAreDistinct},
		{"an id that nobody has is not found", (*tasks).unknownIDs},
		{"lists are ordered by creation, then by id", (*tasks).listsAreOrdered},
		{"a page begins after a task of the owner", (*tasks).pagesBegin},
		{"a task is kept until it expires", (*tasks).tasksExpire},
		{"many save one new task", (*tasks).manyBegin},
		{"many save at the same time", (*tasks).manySave},
		{"a full store refuses new tasks", (*tasks).fullStores},
	}, "tasks agree with a map", (*tasks).agreeWithMap)
}

// tasks are the Tasks under test.
type tasks struct {
	Tasks
	t   cleanupTB
	ctx context.Context // ends the test if something hangs
}

func openTasks(t *testing.T, tb cleanupTB, open func(*testing.T) Tasks, o proptest.ContractOptions) *tasks {
	return &tasks{open(t), tb, guarded(tb, o)}
}

func (s *tasks) stores() []server.TaskStore { return []server.TaskStore{s.A, s.B} }

var (
	// began is when the first task of a test was created.
	began = time.Date(2026, 11, 26, 1, 2, 3, 456_789_012, time.UTC)

	// never is when most tasks expire.
	never = time.Date(2126, 11, 26, 1, 2, 3, 456_789_012, time.UTC)
)

// taskOf returns a task that was created n nanoseconds after began.
func taskOf(owner, id string, n int) *server.TaskRecord {
	stamp := began.Format(time.RFC3339)
	return &server.TaskRecord{
		Task:  protocol.DetailedTask{Task: protocol.Task{TaskID: id, Status: protocol.TaskWorking, CreatedAt: stamp, LastUpdatedAt: stamp}},
		Owner: owner, Client: cmp.Or(owner, "192.0.2.1"), Created: began.Add(time.Duration(n)), Expires: never,
	}
}

func (s *tasks) save(to server.TaskStore, r *server.TaskRecord) {
	s.t.Helper()
	if err := to.Save(s.ctx, r); err != nil {
		s.t.Fatalf("saving the task %q got %v", r.Task.TaskID, err)
	}
}

func (s *tasks) delete(from server.TaskStore, id string) {
	s.t.Helper()
	if err := from.Delete(s.ctx, id); err != nil {
		s.t.Fatalf("deleting the task %q got %v", id, err)
	}
}

// want checks that both stores have a task.
func (s *tasks) want(r *server.TaskRecord) {
	s.t.Helper()
	for _, store := range s.stores() {
		if got, err := store.Load(s.ctx, r.Task.TaskID); err != nil || taskText(got) != taskText(r) {
			s.t.Fatalf("Load returned %.600s, %v, and what was saved is %.600s", taskText(got), err, taskText(r))
		}
	}
}

// wantNone checks that neither store has a task.
func (s *tasks) wantNone(id string) {
	s.t.Helper()
	for _, store := range s.stores() {
		if got, err := store.Load(s.ctx, id); !errors.Is(err, server.ErrNotFound) {
			s.t.Fatalf("Load of %.100q, which does not exist, returned %.600s, %v", id, taskText(got), err)
		}
	}
}

// wantList checks the lists of both stores.
func (s *tasks) wantList(owner, after string, limit int, want ...*server.TaskRecord) {
	s.t.Helper()
	for _, store := range s.stores() {
		got, err := store.List(s.ctx, owner, after, limit)
		if err != nil || !slices.EqualFunc(got, want, func(a, b *server.TaskRecord) bool { return taskText(a) == taskText(b) }) {
			s.t.Fatalf("List of %.100q after %q, at most %d, returned %s, %v, want %s", owner, after, limit, idsOf(got), err, idsOf(want))
		}
	}
}

// wantNoList checks that both stores say that no task of an owner has an id.
func (s *tasks) wantNoList(owner, after string) {
	s.t.Helper()
	for _, store := range s.stores() {
		if got, err := store.List(s.ctx, owner, after, 10); !errors.Is(err, server.ErrNotFound) {
			s.t.Fatalf("List of %.100q after %.100q, which is no task of the owner, returned %s, %v", owner, after, idsOf(got), err)
		}
	}
}

func idsOf(all []*server.TaskRecord) string {
	ids := []string{}
	for _, r := range all {
		ids = append(ids, r.Task.TaskID)
	}
	return fmt.Sprintf("%.400q", ids)
}

// taskText returns everything in a record as text.
func taskText(r *server.TaskRecord) string {
	if r == nil {
		return "none"
	}
	task, err := protocol.Marshal(r.Task)
	var compact bytes.Buffer
	if err = errors.Join(err, json.Compact(&compact, task)); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %q %q %q %q %s %s", &compact, r.Tool, r.Owner, r.Client, r.Node,
		r.Created.UTC().Format(time.RFC3339Nano), r.Expires.UTC().Format(time.RFC3339Nano))
}

func (s *tasks) recordsAreWhole() {
	ttl, interval := int64(86_400_000), int64(0)
	full := taskOf("user \"'`ö\x01", "node-1.ABCDEFGHIJKLMNOPQRSTUVWXYZ", 1)
	full.Tool, full.Client, full.Node = "tool ü", "192.0.2.1", "node-1"
	full.Task.StatusMessage, full.Task.TTLMs, full.Task.PollIntervalMs = "half \n done", &ttl, &interval
	asking := taskOf("", "2", 2)
	asking.Task.Status = protocol.TaskInputRequired
	asking.Task.InputRequests = protocol.InputRequests{
		"1": &protocol.ElicitParams{Message: "Sure?", RequestedSchema: []byte(`{"type":"object","properties":{}}`)}, "r": &protocol.ListRootsParams{},
	}
	done := taskOf("u", strings.Repeat("n", 64)+".ABCDEFGHIJKLMNOPQRSTUVWXYZ", 3)
	done.Task.Status = protocol.TaskCompleted
	done.Task.FinalResult = []byte(`{"b":1,"a":[1e400,12345678901234567890,0.10,"\u00e9\ud83d\ude00"],"content":[]}`)
	failed := taskOf("u", "4", 4)
	failed.Task.Status, failed.Task.Error = protocol.TaskFailed, &protocol.TaskError{Code: -32603, Message: "it broke", Data: []byte(`{"why":null}`)}
	large := taskOf("u", "5", 5)
	large.Task.Status, large.Task.FinalResult = protocol.TaskCompleted, []byte(`{"text":"`+strings.Repeat("x", 100<<10)+`"}`)
	for n, r := range []*server.TaskRecord{full, asking, done, failed, large} {
		s.save(s.stores()[n%2], r)
		s.want(r)
		s.wantList(r.Owner, "", 1, r)
		s.delete(s.A, r.Task.TaskID)
	}
}

func (s *tasks) recordsAreReplaced() {
	first, second := taskOf("u", "a.1", 1), taskOf("u", "a.1", 1)
	second.Task.Status, second.Task.StatusMessage = protocol.TaskCancelled, "cancelled"
	for n := range 4 {
		s.save(s.stores()[n%2], first)
		s.want(first)
		s.save(s.stores()[(n+1)%2], second)
		s.want(second)
		s.wantList("u", "", 10, second)
		for range 2 { // it may be deleted twice
			s.delete(s.stores()[n%2], "a.1")
			s.wantNone("a.1")
			s.wantList("u", "", 10)
		}
	}
}

func (s *tasks) recordsAreCopies() {
	given, saved := taskOf("u", "a.1", 1), taskOf("u", "a.1", 1)
	s.save(s.A, given)
	change := func(r *server.TaskRecord) { r.Task.Status, r.Tool, r.Owner = protocol.TaskFailed, "changed", "eve" }
	change(given)
	s.want(saved)
	for _, store := range s.stores() {
		if got, err := store.Load(s.ctx, "a.1"); err == nil {
			change(got)
		}
		if all, err := store.List(s.ctx, "u", "", 1); err == nil && len(all) == 1 {
			change(all[0])
		}
	}
	s.want(saved)
	s.wantList("u", "", 10, saved)
}

func (s *tasks) idsAreDistinct() {
	owners := []string{"", "a", "A", "a ", " a", "a.b", "a/b", "..", "*", ">", "%", "_", "a\x00", "'; --", `"`, `\`, "é", "e\u0301", "\u2028", strings.Repeat("x", 1000)}
	for n, owner := range owners { // one at a time, because a store may be small
		for m, id := range []string{"a.1", "A.1", "a.1A", "a-.1", "a_.1"} {
			s.save(s.stores()[(n+m)%2], taskOf(owner, id, m))
		}
		s.delete(s.A, "a.1A")
		for _, id := range []string{"a.1", "A.1", "a-.1", "a_.1"} {
			for _, store := range s.stores() {
				if r, err := store.Load(s.ctx, id); err != nil || r.Task.TaskID != id || r.Owner != owner {
					s.t.Fatalf("Load of %q returned %.600s, %v", id, taskText(r), err)
				}
			}
		}
		for _, other := range owners {
			all, err := s.B.List(s.ctx, other, "", 10)
			if want := map[bool]int{true: 4}[other == owner]; err != nil || len(all) != want {
				s.t.Fatalf("List of %.100q returned %s, %v, and %d tasks are of %.100q", other, idsOf(all), err, 4, owner)
			}
		}
		for _, id := range []string{"a.1", "A.1", "a-.1", "a_.1"} {
			s.delete(s.B, id)
		}
	}
}

func (s *tasks) unknownIDs() {
	s.save(s.A, taskOf("u", "a.1", 1))
	for _, id := range []string{
		"a", "a.", ".", "..", "a.1.", "a.2", "a.*", "*", ">", "%", "a._", "'; drop table tasks; --", `"`, `\`, "a.1\x00", "a.1 ", " a.1", "A.1", "\xff", "é", "\u2028", "/", "../a.1", "%61.1",
		"$1", "?", ":id", strings.Repeat("x", 91),
	} {
		s.wantNone(id)
		s.wantNoList("u", id)
		s.delete(s.B, id)
	}
	if all, err := s.A.List(s.ctx, "u", "", 10); err != nil || idsOf(all) != `["a.1"]` {
		s.t.Fatalf("tasks that do not exist were deleted, and List returned %s, %v", idsOf(all), err)
	}
}

func (s *tasks) listsAreOrdered() {
	ordered := []*server.TaskRecord{
		taskOf("u", "z.1", -1), taskOf("u", "A.2", 0), taskOf("u", "Z.1", 0), taskOf("u", "a.1", 0), taskOf("u", "a.10", 0), taskOf("u", "a.2", 0), taskOf("u", "0.1", int(time.Hour)),
	}
	ordered[1].Created = ordered[1].Created.In(time.FixedZone("far east", 14*60*60)) // the same instant
	for n, i := range []int{5, 0, 3, 6, 1, 4, 2} {
		s.save(s.stores()[n%2], ordered[i])
	}
	for limit := 1; limit <= len(ordered)+1; limit++ {
		s.wantList("u", "", limit, ordered[:min(limit, len(ordered))]...)
		for i, r := range ordered {
			rest := ordered[i+1:]
			s.wantList("u", r.Task.TaskID, limit, rest[:min(limit, len(rest))]...)
		}
	}
}

func (s *tasks) pagesBegin() {
	mine, others, gone := taskOf("u", "a.1", 1), taskOf("v", "a.2", 2), taskOf("u", "a.3", 3)
	for n, r := range []*server.TaskRecord{mine, others, gone} {
		s.save(s.stores()[n%2], r)
	}
	s.delete(s.A, "a.3")
	s.wantList("u", "a.1", 10)
	s.wantList("w", "", 10)
	s.wantNoList("u", "a.2")
	s.wantNoList("u", "a.3")
	s.wantNoList("w", "a.1")
}

func (s *tasks) tasksExpire() {
	stays, soon, expired := taskOf("u", "a.1", 1), taskOf("u", "a.2", 2), taskOf("u", "a.3", 3)
	soon.Expires, expired.Expires = time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for n, r := range []*server.TaskRecord{stays, soon, expired, soon} {
		s.save(s.stores()[n%2], r)
	}
	for range 3 {
		s.want(stays)
		s.want(soon)
		for _, store := range s.stores() {
			if got, err := store.Load(s.ctx, "a.3"); !errors.Is(err, server.ErrNotFound) && (err != nil || taskText(got) != taskText(expired)) {
				s.t.Fatalf("Load of a task that has expired returned %.600s, %v, want the task or ErrNotFound", taskText(got), err)
			}
			all, err := store.List(s.ctx, "u", "", 10)
			if err != nil || idsOf(all) != `["a.1" "a.2"]` && idsOf(all) != `["a.1" "a.2" "a.3"]` {
				s.t.Fatalf("List returned %s, %v, and of three tasks the last has expired", idsOf(all), err)
			}
		}
	}
}

func (s *tasks) manyBegin() {
	for range 20 {
		var group sync.WaitGroup
		begin := make(chan struct{})
		for n := range 8 {
			group.Go(func() {
				<-begin
				r := taskOf("u", "a.1", 1)
				r.Tool = fmt.Sprint(n)
				if err := s.stores()[n%2].Save(s.ctx, r); err != nil {
					s.t.Errorf("a Save of one new task among many got %v", err)
				}
			})
		}
		close(begin)
		group.Wait()
		if all, err := s.A.List(s.ctx, "u", "", 10); err != nil || len(all) != 1 {
			s.t.Fatalf("many have saved one task, and List returned %s, %v", idsOf(all), err)
		}
		s.delete(s.B, "a.1")
		s.wantNone("a.1")
	}
}

func (s *tasks) manySave() {
	const savers, times = 6, 10
	var group sync.WaitGroup
	for n := range savers {
		group.Go(func() {
			store := s.stores()[n%2]
			for i := range times {
				shared, own := taskOf("u", "a.shared", 0), taskOf("u", fmt.Sprintf("a.%d", n), 1)
				shared.Tool, shared.Task.StatusMessage = fmt.Sprint(n, i), fmt.Sprint(n, i)
				own.Tool = fmt.Sprint(i)
				for _, r := range []*server.TaskRecord{shared, own} {
					if err := store.Save(s.ctx, r); err != nil {
						s.t.Errorf("a Save among many got %v", err)
						return
					}
				}
				if r, err := store.Load(s.ctx, "a.shared"); err != nil || r.Tool != r.Task.StatusMessage {
					s.t.Errorf("a Load among many saves got %.600s, %v, want what one Save has saved", taskText(r), err)
				}
				all, err := store.List(s.ctx, "u", "", 2*savers)
				sorted := slices.IsSortedFunc(all, func(a, b *server.TaskRecord) int {
					return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Task.TaskID, b.Task.TaskID))
				})
				if err != nil || !sorted || len(all) > savers+1 {
					s.t.Errorf("a List among many saves got %s, %v", idsOf(all), err)
				}
			}
		})
	}
	group.Wait()
	for n := range savers {
		if r, err := s.B.Load(s.ctx, fmt.Sprintf("a.%d", n)); err != nil || r.Tool != fmt.Sprint(times-1) {
			s.t.Fatalf("after many saves Load returned %.600s, %v, want the last one", taskText(r), err)
		}
	}
}

func (s *tasks) fullStores() {
	if s.MaxTasks == 0 {
		return
	}
	for n := range s.MaxTasks {
		s.save(s.stores()[n%2], taskOf(fmt.Sprint("u", n), fmt.Sprintf("a.%d", n), n))
	}
	for _, store := range s.stores() {
		if err := store.Save(s.ctx, taskOf("v", "b.1", 0)); !errors.Is(err, server.ErrTaskStoreFull) {
			s.t.Fatalf("Save to a full store got %v, want %v", err, server.ErrTaskStoreFull)
		}
	}
	s.wantNone("b.1")
	ended := taskOf("u0", "a.0", 0)
	ended.Task.Status = protocol.TaskCancelled
	s.save(s.B, ended) // it replaces one
	s.want(ended)
	s.delete(s.A, "a.0")
	s.save(s.B, taskOf("v", "b.1", 0))
	if err := s.A.Save(s.ctx, ended); !errors.Is(err, server.ErrTaskStoreFull) {
		s.t.Fatalf("Save to a store that is full again got %v, want %v", err, server.ErrTaskStoreFull)
	}
}
