package tasks

import (
	"slices"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Tasks that run, and that have ended, are bounded. The first one that has ended is forgotten first, and one whose time is over gives its place back.
//
// Guarantees: G-0094.4
func TestTasksAreBounded(t *testing.T) {
	b, now := New(""), time.Now()
	one, other := share.Client{Network: "one"}, share.Client{Network: "other"}
	var ids []string
	released := 0
	for b.Enter(one, now) == "" {
		ids = append(ids, b.Add(Task{Own: "t", Over: 1, Payer: one, Ends: now.Add(time.Minute), Release: func() { released++ }}))
	}
	if len(ids) < 256 || len(ids) > MostRunning {
		t.Errorf("a client alone runs %d tasks", len(ids))
	}
	if refused := b.Enter(other, now); refused != "" {
		t.Errorf("another client has none: %s", refused)
	}
	if next := b.Sweep(now); !next.Equal(now.Add(time.Minute)) || released != 0 {
		t.Errorf("the next one is forgotten at %v, and %d are not held any more", next, released)
	}
	later := now.Add(time.Minute)
	if b.Find(ids[0], "", false, now) == nil || b.Find(ids[0], "", false, later) != nil {
		t.Error("a task is not kept until its time is over, or longer")
	}
	if refused := b.Enter(one, later); refused != "" || len(b.tasks) != 0 || len(b.runs) != 0 || len(b.owns) != 0 || released != len(ids) {
		t.Errorf("after their time %d are left: %s", len(b.tasks), refused)
	}
	b.Leave(one)
	ids, released = nil, 0
	var first *Task
	for range MostEnded + 1 {
		if refused := b.Enter(one, later); refused != "" {
			t.Fatal(refused)
		}
		id := b.Add(Task{Payer: one, Ends: later.Add(time.Minute), Release: func() { released++ }})
		task := b.Find(id, "", false, later)
		b.Finish(task, protocol.TaskCompleted)
		b.End(task) // nothing is given back twice
		if ids = append(ids, id); first == nil {
			first = task
		}
	}
	b.Finish(first, protocol.TaskFailed) // it was forgotten
	if last := b.Last(first); last != "" || len(b.last) != MostEnded {
		t.Errorf("how %d tasks have ended is known, also of one that was forgotten: %s", len(b.last), last)
	}
	if b.Find(ids[0], "", false, later) != nil || b.Find(ids[1], "", false, later) == nil || len(b.tasks) != MostEnded || b.running.Held() != 1 || released != len(ids) {
		t.Errorf("%d have ended, %d places are held, and %d servers were released", len(b.tasks), b.running.Held(), released)
	}
}

// A task is found by its owner, in its own revision, and while it lasts; by its server as long. The next look is when the first one ends that runs.
//
// Guarantees: G-0094.4
func TestWhoFindsATask(t *testing.T) {
	b, now := New(""), time.Now()
	var ids []string
	for i, lasts := range []time.Duration{3, 1, 2, 5} {
		if refused := b.Enter(share.Client{}, now); refused != "" {
			t.Fatal(refused)
		}
		ids = append(ids, b.Add(Task{Own: string(rune('a' + i)), Over: 1, Owner: "ann", Modern: true, Ends: now.Add(lasts * time.Minute), Release: func() {}}))
	}
	b.End(b.Find(ids[1], "ann", true, now))
	if next := b.Sweep(now); !next.Equal(now.Add(2 * time.Minute)) {
		t.Errorf("the next look is %v from now", next.Sub(now))
	}
	later := now.Add(2 * time.Minute)
	if b.Find(ids[2], "ann", true, now) == nil || b.Find(ids[2], "ann", false, now) != nil || b.Find(ids[2], "bob", true, now) != nil || b.Find(ids[2], "ann", true, later) != nil {
		t.Error("a task is found by somebody else, in another revision, or too late")
	}
	if b.FindOwn(1, "c", now) == nil || b.FindOwn(2, "c", now) != nil || b.FindOwn(1, "c", later) != nil {
		t.Error("a server finds a task over another connection, or too late")
	}
}

// Who has ended many tasks loses those of nobody else, who has yet to fetch what they have led to.
//
// Guarantees: G-0094.4
func TestEndedTasksAreThoseOfAll(t *testing.T) {
	b, now := New(""), time.Now()
	end := func(of string) (id string) {
		payer := share.Client{Network: of}
		if refused := b.Enter(payer, now); refused != "" {
			t.Fatal(refused)
		}
		id = b.Add(Task{Payer: payer, Ends: now.Add(time.Minute), Release: func() {}})
		b.End(b.Find(id, "", false, now))
		return id
	}
	before := end("one")
	first := end("many")
	for range MostEnded {
		end("many")
	}
	if b.Find(before, "", false, now) == nil || b.Find(first, "", false, now) != nil || len(b.tasks) != MostEnded {
		t.Errorf("another client's task was forgotten, or too few were: %d are left", len(b.tasks))
	}
	// Those whose time is over do not count any more.
	now = now.Add(time.Minute)
	b.Sweep(now)
	first = end("one")
	for range MostEnded - 1 {
		end("one")
	}
	if b.Find(first, "", false, now) == nil || len(b.tasks) != MostEnded {
		t.Errorf("a task is forgotten because of those whose time was over: %d are left", len(b.tasks))
	}
}

// What a server has said of the end of a task stays, whatever is heard of it later.
//
// Guarantees: G-0094.3
func TestATaskEndsOnce(t *testing.T) {
	b, now := New(""), time.Now()
	task := b.Find(b.Add(Task{Ends: now.Add(time.Minute), Release: func() {}}), "", false, now)
	if last := b.Last(task); last != "" {
		t.Errorf("it runs, and has ended as %s", last)
	}
	b.Finish(task, protocol.TaskCompleted)
	b.Finish(task, protocol.TaskFailed)
	if last := b.Last(task); last != protocol.TaskCompleted {
		t.Errorf("it was completed first, and now is %s", last)
	}
}

// Only the lost tasks of a server end with it.
//
// Guarantees: G-0094.3
func TestOnlyLostTasksEnd(t *testing.T) {
	b, now := New(""), time.Now()
	for _, task := range []Task{{Own: "before", Of: 1, Run: 1}, {Own: "now", Of: 1, Run: 2}, {Own: "elsewhere", Of: 2, Run: 1}} {
		if refused := b.Enter(task.Payer, now); refused != "" {
			t.Fatal(refused)
		}
		task.Ends, task.Release = now.Add(time.Minute), func() {}
		b.Add(task)
	}
	isLost := func(t *Task) bool { return t.Of == 1 && t.Run != 2 }
	if lost := b.EndLost(isLost); len(lost) != 1 || lost[0].Own != "before" || len(b.runs) != 2 || len(b.EndLost(isLost)) != 0 {
		t.Errorf("lost: %v", lost)
	}
}

// A list has the tasks of 2025-11-25 that who asks for it has started and sees, as long as they are kept, in the order of their ids.
//
// Guarantees: G-0094.2
func TestListOfTasks(t *testing.T) {
	b, now := New(""), time.Now()
	add := func(owner string, modern bool, kept time.Duration) string {
		return b.Add(Task{Owner: owner, Modern: modern, Ends: now.Add(kept), Release: func() {}})
	}
	add("ada", true, time.Minute)
	add("bob", false, time.Minute)
	add("ada", false, 0)
	hidden := add("ada", false, time.Minute)
	want := []string{add("ada", false, time.Minute), add("ada", false, time.Minute), add("ada", false, time.Minute)}
	slices.Sort(want)
	sees := func(t *Task) bool { return t.ID != hidden }
	for most := range 4 {
		var got []string
		for _, task := range b.List("ada", "", most, now, sees) {
			got = append(got, task.ID)
		}
		if !slices.Equal(got, want[:most]) {
			t.Errorf("of %q the list has %q", want[:most], got)
		}
	}
	if rest := b.List("ada", want[0], 9, now, sees); len(rest) != 2 || rest[0].ID != want[1] {
		t.Errorf("after the first one it has %d", len(rest))
	}
}

// Of two tasks to which a server gives the same id, that of the first client is not the second one.
//
// Guarantees: G-0094.2
func TestTaskIsReplaced(t *testing.T) {
	b, now := New(""), time.Now()
	add := func(over any) *Task {
		return b.Find(b.Add(Task{Own: "1", Over: over, Ends: now.Add(time.Minute), Release: func() {}}), "", false, now)
	}
	first, elsewhere, second := add(1), add(2), add(1)
	if !b.IsReplaced(first) || b.IsReplaced(second) || b.IsReplaced(elsewhere) {
		t.Error("it is not the first one that was replaced")
	}
	first.Ends = now // only that one is forgotten
	b.Sweep(now)
	if b.IsReplaced(second) || b.FindOwn(1, "1", now) != second {
		t.Error("with the first one, the second one is forgotten")
	}
}
