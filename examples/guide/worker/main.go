// Worker works on a queue of jobs, each a call of a tool, and loses none when it is told to end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A worker does the jobs of a queue.
type worker struct {
	queue    *queue
	session  *client.Session
	report   func(Outcome) // from several goroutines
	attempts int           // how often a job is tried that was not executed
	patience time.Duration // how long one attempt may take, with the wait for a server that is away
	pause    time.Duration // after a job that was refused
	grace    time.Duration // how long calls may go on that run when the worker is told to end
}

// run works on so many jobs at a time, until ctx ends. It returns when no call runs any more; the jobs that were not done are in the queue then.
func (w *worker) run(ctx context.Context, parallel int) {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a call outlives the end of ctx
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(w.grace, cancel) })()
	var working sync.WaitGroup
	for range parallel {
		working.Go(func() {
			for ctx.Err() == nil { // select may take another job although ctx has ended
				select {
				case job := <-w.queue.waiting:
					w.do(ctx, calls, job)
				case <-ctx.Done():
				}
			}
		})
	}
	working.Wait()
}

// do does a job, or puts it back if it was not done and may be done later.
func (w *worker) do(ctx, calls context.Context, job Job) {
	limited, cancel := context.WithTimeout(calls, w.patience)
	defer cancel()
	patient := w.session.With(client.CallOptions{WaitForReady: true})
	result, err := patient.CallTool(limited, &protocol.CallToolParams{Name: job.Tool, Arguments: job.Arguments})
	outcome := Outcome{Job: job, Result: result, Err: err}
	switch {
	case err == nil: // the tool may have failed: then the result says why
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnsupported): // it would fail again
	case client.NotExecuted(err) && ctx.Err() != nil:
		w.queue.putBack(job) // for the next run: it was no fault of the job
		return
	case client.NotExecuted(err):
		if job.Attempts++; job.Attempts < w.attempts {
			w.queue.putBack(job)
			w.wait(ctx)
			return
		}
	default:
		outcome.Doubtful = true
	}
	w.queue.finish()
	w.report(outcome)
}

// wait gives a server that refuses jobs some time.
func (w *worker) wait(ctx context.Context) {
	pause := time.NewTimer(w.pause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// show prints what became of a job.
func show(o Outcome) {
	switch {
	case o.Doubtful:
		fmt.Printf("%s: perhaps done: %v\n", o.ID, o.Err)
	case o.Err != nil:
		fmt.Printf("%s: not done: %v\n", o.ID, o.Err)
	default:
		fmt.Printf("%s: %s\n", o.ID, o.Result.Content.Text())
	}
}

// run asks for the weather of some cities, one after the other, until SIGTERM.
func run(ctx context.Context, cities []string) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c := client.New(protocol.Implementation{Name: "worker", Version: "1.0"}, client.Options{})
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	session, err := c.Start(ctx, "weather", &stdio.Command{Path: "weather"})
	if err != nil {
		return err
	}
	jobs := newQueue(100)
	for _, city := range cities {
		arguments, err := json.Marshal(map[string]string{"city": city})
		if err != nil {
			return err
		}
		if err := jobs.add(Job{ID: city, Tool: "forecast", Arguments: arguments}); err != nil {
			return fmt.Errorf("add %s: %w", city, err)
		}
	}
	var left sync.WaitGroup // a program that gets jobs from elsewhere works until it is told to end
	left.Add(len(cities))
	done := func(o Outcome) { show(o); left.Done() }
	go func() { left.Wait(); stop() }()
	w := &worker{queue: jobs, session: session, report: done, attempts: 5, patience: time.Minute, pause: time.Second, grace: 5 * time.Second}
	w.run(ctx, 1)
	for _, job := range jobs.rest() { // store them in a program of your own
		left.Done()
		fmt.Printf("%s: left\n", job.ID)
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
