package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// questions are those that wait for a client. Their number is bounded by the requests in flight: a server asks in one of them, or is
// refused. A modern client holds its question itself until it answers, so the question of a modern server to one is not here.
type questions struct {
	mu      sync.Mutex
	waiting map[*asked]bool
	refused map[string]int64 // by one of admin.RefusalReasons
	asking  map[string]int   // the questions that wait, by the call that they were asked in
}

// choose returns the call in which to ask next: of those in flight the one with the fewest waiting questions, or the one that has ended if none is in flight. A client
// answers the questions of one call one after the other, and a call may ask only so often. The question counts as waiting until done is called. The calls in flight
// are looked up under the mutex, so that two questions at the same time do not both take the same free call.
func (q *questions) choose(ended context.Context, inFlight func() []context.Context) (call context.Context, done func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls := inFlight()
	if len(calls) == 0 {
		calls = append(calls, ended)
	}
	if q.asking == nil {
		q.asking = make(map[string]int)
	}
	least := slices.MinFunc(calls, func(a, b context.Context) int {
		return cmp.Compare(q.asking[server.RequestFrom(a).CallID()], q.asking[server.RequestFrom(b).CallID()])
	})
	id := server.RequestFrom(least).CallID()
	q.asking[id]++
	return least, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.asking[id]--; q.asking[id] == 0 {
			delete(q.asking, id)
		}
	}
}

// refuse counts a question that no client could be asked.
func (q *questions) refuse(why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused == nil {
		q.refused = make(map[string]int64)
	}
	q.refused[why]++
}

// refusals returns how many questions were refused, by why.
func (q *questions) refusals() map[string]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.refused)
}

// asked is a question that waits.
type asked struct {
	admin.Question
	owner any                     // of its call
	end   context.CancelCauseFunc // nil: it ends with its call
}

// leftAfter is how long a client of which nothing is known may take to answer while another client needs to be asked. Such a client just does not come back,
// so nothing else says that it has left.
const leftAfter = time.Minute

// errLeft tells a server that its question has ended.
var errLeft = &jsonrpc.Error{
	Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the client has not answered for %v, and another one has to be asked", leftAfter),
}

// single is the owner of one call, whose client nothing is known of.
type single string

// isLeft reports whether the question has waited too long for a client of which nothing is known.
func (a *asked) isLeft() bool {
	_, unknown := a.owner.(single)
	return unknown && a.end != nil && time.Since(a.Since) >= leftAfter
}

// isLeft reports whether a client has probably left.
func (q *questions) isLeft(owner any) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for question := range q.waiting {
		if question.owner == owner && question.isLeft() {
			return true
		}
	}
	return false
}

// giveUp ends the questions to a client that has probably left.
func (q *questions) giveUp(owner any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for question := range q.waiting {
		if question.owner == owner && question.isLeft() {
			question.end(errLeft)
		}
	}
}

// ask notes a question, until done is called.
func (q *questions) ask(question *asked) (done func()) {
	question.Since = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = make(map[*asked]bool)
	}
	q.waiting[question] = true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, question)
	}
}

// list returns the questions that wait, the oldest first.
func (q *questions) list() (all []admin.Question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for question := range q.waiting {
		all = append(all, question.Question)
	}
	slices.SortFunc(all, func(a, b admin.Question) int { return a.Since.Compare(b.Since) })
	return all
}
