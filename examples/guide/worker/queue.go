package main

import (
	"encoding/json"
	"errors"

	"github.com/bowline-mcp/bowline/protocol"
)

// A Job is a call of a tool that somebody waits for, and that must not get lost.
type Job struct {
	ID, Tool  string
	Arguments json.RawMessage
	Attempts  int // how often it was tried in vain
}

// An Outcome says what became of a job.
type Outcome struct {
	Job
	Result *protocol.CallToolResult // nil if Err says why there is none

	// Err is why there is no result. If Doubtful is set, the job may have been done: a person, or a look at what it was to change, has to
	// find out. It is not done again by itself.
	Err      error
	Doubtful bool
}

// errFull says that the queue holds as many jobs as it may. Who adds jobs has to wait.
var errFull = errors.New("the queue is full")

// A queue holds a limited number of jobs: those that wait, and those that are being done. So a job that is put back always finds its place.
type queue struct {
	waiting chan Job
	places  chan struct{} // a token for each job
}

func newQueue(size int) *queue {
	return &queue{waiting: make(chan Job, size), places: make(chan struct{}, size)}
}

// add adds a job, or returns errFull.
func (q *queue) add(job Job) error {
	select {
	case q.places <- struct{}{}:
		q.waiting <- job
		return nil
	default:
		return errFull
	}
}

// putBack puts a job that was taken behind the others.
func (q *queue) putBack(job Job) { q.waiting <- job }

// finish gives back the place of a job that was taken.
func (q *queue) finish() { <-q.places }

// rest takes out what waits. Call it when nobody works any more, and store the jobs for the next run.
func (q *queue) rest() (jobs []Job) {
	for {
		select {
		case job := <-q.waiting:
			q.finish()
			jobs = append(jobs, job)
		default:
			return jobs
		}
	}
}
