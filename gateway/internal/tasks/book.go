// Package tasks knows the tasks that clients of a gateway have started: whose each one is, and at which server.
//
// A task lives at its server. Of it, a Book keeps who may see it and where it is, under an id of the gateway. It has no
// goroutine and no clock; any goroutine may use it.
package tasks

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
)

const (
	// MostRunning is how many tasks of a gateway may run.
	MostRunning = 1024
	// MostEnded is how many tasks are kept that have ended. Of the client that has most of them, the one that ended first is forgotten.
	MostEnded = 4096
	// Longest is how long a task is kept whose server keeps it for longer, or does not say.
	Longest = 24 * time.Hour
)

// A Task is a task of a server. It does not change.
type Task struct {
	ID      string // among those of the gateway: a secret, since who has no login has nothing else
	Own     string // among those of its server
	Server  string
	Of      any             // what knows the server; another value is another server
	Share   string          // who used one connection with it then
	Over    any             // the connection on which it was started
	Run     uint64          // of the server over that connection
	Owner   string          // identity; "": none
	Payer   share.Client    // whose share of the running ones it takes
	Modern  bool            // it belongs to the extension, and not to 2025-11-25
	Session *server.Session // of the client that has started it; nil: a modern one
	Created json.RawMessage // the task as the server described it first
	Ends    time.Time       // when it is forgotten
	Release func()          // called once, when it does not run any more
}

type own struct {
	over any
	id   string
}

// A Book has the tasks of a gateway. Make one with New.
type Book struct {
	node    string
	running *share.Pool

	mu    sync.Mutex
	tasks map[string]*Task
	owns  map[own]*Task
	runs  map[*Task]bool
	last  map[*Task]protocol.TaskStatus // in which one has ended, if its server has said so
	ended []*Task                       // the first one ended first
}

// New returns a Book without tasks. Their ids have the name of this node, "" for none, so that requests about them find it.
func New(node string) *Book {
	// shared: running tasks of servers behind a gateway | 1024 places | one | a legacy client is refused with -32050; of a modern one's call no task is made | -
	return &Book{node: node, running: share.NewPlaces(MostRunning), tasks: make(map[string]*Task), owns: make(map[own]*Task), runs: make(map[*Task]bool), last: make(map[*Task]protocol.TaskStatus)}
}

// Enter takes a place for a call that may become a task, or says why there is none. What is over by then gives its place back.
func (b *Book) Enter(of share.Client, now time.Time) (refused string) {
	if b.running.Take(of, 1) {
		return ""
	}
	b.Sweep(now)
	if b.running.Take(of, 1) {
		return ""
	}
	return b.running.Refused(1)
}

// Leave gives a place back whose call has not become a task.
func (b *Book) Leave(of share.Client) { b.running.Give(of, 1) }

// Add keeps a task, whose place was taken, and returns its id.
func (b *Book) Add(t Task) (id string) {
	t.ID = nodename.Join(b.node, rand.Text())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks[t.ID], b.owns[own{t.Over, t.Own}], b.runs[&t] = &t, &t, true
	return t.ID
}

// Find returns a task that its client names by its id; nil: it has none.
func (b *Book) Find(id, owner string, modern bool, now time.Time) *Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tasks[id]; t != nil && t.Owner == owner && t.Modern == modern && now.Before(t.Ends) {
		return t
	}
	return nil
}

// FindOwn returns a task that its server names by its own id; nil: no client has started it.
func (b *Book) FindOwn(over any, id string, now time.Time) *Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.owns[own{over, id}]; t != nil && now.Before(t.Ends) {
		return t
	}
	return nil
}

// List returns tasks of 2025-11-25 of an owner with greater ids that he sees, in the order of these: most at most.
func (b *Book) List(owner, after string, most int, now time.Time, sees func(*Task) bool) (all []*Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tasks {
		if t.Owner == owner && !t.Modern && t.ID > after && now.Before(t.Ends) && sees(t) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *Task) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(len(all), most)]
}

// End notes that a task has ended. It is kept, since its client has yet to fetch the result.
func (b *Book) End(t *Task) {
	b.mu.Lock()
	ended := b.end(t)
	b.mu.Unlock()
	if ended {
		b.release(t)
	}
}

// Finish notes in which state a task has ended at its server, which never changes.
func (b *Book) Finish(t *Task, in protocol.TaskStatus) {
	b.mu.Lock()
	if b.tasks[t.ID] == t && b.last[t] == "" {
		b.last[t] = in
	}
	b.mu.Unlock()
	b.End(t)
}

// Last returns in which state a task has ended at its server; "": it has not, as far as is known.
func (b *Book) Last(t *Task) protocol.TaskStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[t]
}

// IsReplaced reports whether the server has given the id of a task to another one since: it has forgotten this one.
func (b *Book) IsReplaced(t *Task) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owns[own{t.Over, t.Own}] != t
}

// EndLost ends the tasks that are lost, and returns them.
func (b *Book) EndLost(isLost func(*Task) bool) (lost []*Task) {
	b.mu.Lock()
	for t := range b.runs {
		if isLost(t) && b.end(t) {
			lost = append(lost, t)
		}
	}
	b.mu.Unlock()
	b.release(lost...)
	return lost
}

// end takes a task out of those that run. The caller holds mu, and calls release without it.
func (b *Book) end(t *Task) bool {
	if !b.runs[t] {
		return false
	}
	delete(b.runs, t)
	if b.ended = append(b.ended, t); len(b.ended) > MostEnded {
		b.forgetOne()
	}
	return true
}

// forgetOne forgets the task that is missed least: the first one of the client with most. The caller holds mu.
func (b *Book) forgetOne() {
	of, most := make(map[share.Client]int), share.Client{}
	for _, t := range b.ended {
		if of[t.Payer]++; of[t.Payer] > of[most] {
			most = t.Payer
		}
	}
	i := slices.IndexFunc(b.ended, func(t *Task) bool { return t.Payer == most })
	b.forget(b.ended[i])
	b.ended = slices.Delete(b.ended, i, i+1)
}

func (b *Book) release(ended ...*Task) {
	for _, t := range ended {
		b.running.Give(t.Payer, 1)
		t.Release()
	}
}

// Sweep forgets the tasks whose time is over, and returns when that of the next one is that runs; never is the zero time.
func (b *Book) Sweep(now time.Time) (next time.Time) {
	var over []*Task
	b.mu.Lock()
	isOver := func(t *Task) bool { return !now.Before(t.Ends) }
	for _, t := range b.tasks {
		runs := b.runs[t]
		switch {
		case !isOver(t):
			if runs && (next.IsZero() || t.Ends.Before(next)) {
				next = t.Ends
			}
			continue
		case runs:
			over = append(over, t)
			delete(b.runs, t)
		}
		b.forget(t)
	}
	b.ended = slices.DeleteFunc(b.ended, isOver)
	b.mu.Unlock()
	b.release(over...)
	return next
}

// forget removes a task that does not run. The caller holds mu.
func (b *Book) forget(t *Task) {
	delete(b.tasks, t.ID)
	delete(b.last, t)
	if key := (own{t.Over, t.Own}); b.owns[key] == t { // a server that was restarted may give the same id again
		delete(b.owns, key)
	}
}
