package gateway

import (
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/admin"
)

// questions are those that wait for a client. Their number is bounded by the requests in flight: a server asks in one of them, or is
// refused. A modern client holds its question itself until it answers, so the question of a modern server to one is not here.
type questions struct {
	mu      sync.Mutex
	waiting map[*admin.Question]bool
}

// ask notes a question, until done is called.
func (q *questions) ask(question admin.Question) (done func()) {
	question.Since = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = make(map[*admin.Question]bool)
	}
	q.waiting[&question] = true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, &question)
	}
}

// list returns the questions that wait, the oldest first.
func (q *questions) list() (all []admin.Question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for question := range q.waiting {
		all = append(all, *question)
	}
	slices.SortFunc(all, func(a, b admin.Question) int { return a.Since.Compare(b.Since) })
	return all
}
