package parts

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// cancelPatience is how long a cancelled HTTP request may take to return before Close
// reports it as left behind.
const cancelPatience = 5 * time.Second

// A Client is what the links of clients over HTTP have in common: the goroutines that make requests,
// the messages that were not sent, and the end.
//
// The end has four steps: the link sends what is queued, cancels its requests, waits for its goroutines,
// and reports the loss, after which nothing is told. One goroutine takes them in this order. It is none
// of those that it waits for, because each of them may be the one that calls EndFor.
//
// Where it says so, Mu is held: by the caller of a method, and while a method of the link is called. Mu
// comes before the lock of Told. A Client has no goroutine before the first Run, and none when those have waited
// in vain for more work.
type Client struct {
	Recv Receiver
	Link Ending // set before the first use

	Mu      sync.Mutex // that of the link
	begun   bool       // the end has begun: nothing more is accepted
	stopped bool       // no more work is started
	workers workers
	unsent  []unsent
	left    error // what the end left behind; set before finished fires

	forced   wait.Signal // fires when the end no longer waits for queued messages
	sent     wait.Signal // fires when the end has begun and nothing is queued
	idle     wait.Signal // fires when the link has stopped and no goroutine runs
	finished wait.Signal // fires when the loss was reported
}

// An Ending is what a link does when its Client ends it, in this order.
type Ending interface {
	// IsEmpty reports whether nothing is queued or being sent. Mu is held.
	IsEmpty() bool

	// AwaitAnswers waits for what may still be answered before the requests are cancelled.
	AwaitAnswers(reason error)

	// Cancel cancels the requests. Mu is held.
	Cancel()

	// EndOthers ends what else the link owns, and returns what is left of it.
	EndOthers(reason error) error

	// Gone is called when the requests have returned. It gives up the rest, and abandons what is still
	// queued. Mu is not held: closing connections may take a while, and Send must not wait for it.
	Gone()

	// Name returns the name of the package, for errors.
	Name() string
}

// An unsent is a message that ends with the link, and of which no byte was sent.
type unsent struct {
	number uint64 // its position in the order of Send
	tag    transport.Tag
}

// Bind implements transport.Link.
func (c *Client) Bind(to transport.Receiver) { c.Recv.Bind(to) }

// HasBegun reports whether the link accepts nothing more. Mu is held.
func (c *Client) HasBegun() bool { return c.begun }

// IsStopped reports whether nothing more may start. Mu is held.
func (c *Client) IsStopped() bool { return c.stopped }

// Abandon keeps a message that was not sent, so that the loss lists it in the order of Send. A message
// without a tag is not listed, since its sender does not want to know. Mu is held.
func (c *Client) Abandon(number uint64, tag transport.Tag) {
	if tag != 0 {
		c.unsent = append(c.unsent, unsent{number, tag})
	}
}

// Withdraw forgets a message that was abandoned, because its sender waits for it no longer. Mu is held.
func (c *Client) Withdraw(number uint64) {
	c.unsent = slices.DeleteFunc(c.unsent, func(u unsent) bool { return u.number == number })
}

// Close is EndFor, and waits until the loss was reported. After 70 % of the grace, the link no longer sends
// what is queued; after all of it, Close calls expire. It returns what was left behind.
func (c *Client) Close(grace time.Duration, expire func()) error {
	c.EndFor(transport.ErrClosed)
	if !wait.Within(c.finished.Wait(), grace/10*7) {
		c.forced.Fire()
	}
	if !wait.Within(c.finished.Wait(), grace-grace/10*7) {
		expire()
	}
	<-c.finished.Wait()
	return c.left
}

// EndFor begins the end of the link. The first reason counts. Any reason other than ErrClosed stops the
// link from sending what is queued.
func (c *Client) EndFor(reason error) {
	c.Mu.Lock()
	defer c.unlock()
	if c.stopped = c.stopped || reason != transport.ErrClosed; c.stopped {
		c.forced.Fire()
	}
	if !c.begun {
		c.begun = true
		go c.finish(reason)
	}
}

// Check notices that a step of the end is complete. The link calls it when it has sent what was queued.
// Mu is held.
func (c *Client) Check() {
	if c.begun && c.Link.IsEmpty() {
		c.sent.Fire()
	}
	if c.stopped && c.workers.running == 0 {
		c.idle.Fire()
	}
}

// unlock gives up Mu, after a change that may complete a step.
func (c *Client) unlock() {
	c.Check()
	c.Mu.Unlock()
}

// finish takes the steps of the end, and reports the loss.
func (c *Client) finish(reason error) {
	defer c.finished.Fire()
	select {
	case <-c.sent.Wait():
	case <-c.forced.Wait():
	}
	c.Link.AwaitAnswers(reason)
	c.stop()
	c.left = c.Link.EndOthers(reason)
	if !wait.Within(c.idle.Wait(), cancelPatience) {
		c.left = errors.Join(c.left, fmt.Errorf("%s: an HTTP request has not returned", c.Link.Name()))
	}
	c.Recv.Lose(transport.Loss{Reason: reason, Unsent: c.tags()})
}

// stop cancels what is running, and prevents that more is started.
func (c *Client) stop() {
	c.Mu.Lock()
	defer c.unlock()
	c.stopped = true
	c.Link.Cancel()
	c.workers.dismiss()
}

// tags lists what was not sent, in the order of Send.
func (c *Client) tags() (tags []transport.Tag) {
	c.Link.Gone()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	slices.SortStableFunc(c.unsent, func(a, b unsent) int { return cmp.Compare(a.number, b.number) })
	for _, u := range c.unsent {
		tags = append(tags, u.tag)
	}
	return tags
}

// AwaitReturn waits for that long until no goroutine runs, before the requests are cancelled. Call it
// in AwaitAnswers only.
func (c *Client) AwaitReturn(patience time.Duration) {
	c.Mu.Lock()
	c.workers.dismiss() // those that wait for work do not return by themselves
	c.unlock()
	wait.Within(c.idle.Wait(), patience)
}

const (
	// lingering is how long a goroutine of a Client waits for more work. A new goroutine for each request
	// would grow its stack each time, deep in net/http.
	lingering = 100 * time.Millisecond

	// maxIdle limits how many wait.
	maxIdle = 64
)

// workers are the goroutines of a Client. Its Mu guards them. The zero value is ready to use.
//
// A channel is in idle exactly while its goroutine waits. Whoever takes it out, with Mu held, sends one
// piece of work or closes it, and never both. So no send waits, and none meets a closed channel.
type workers struct {
	running int           // how many goroutines there are, with those that wait
	idle    []chan func() // of those that wait; each has room for one piece of work
	used    bool          // one of them got work since the timer was set
	armed   bool
	timer   *time.Timer // ends those that wait; nil before the first one
}

// Run runs work on a goroutine that the end of the link waits for. It reports false if nothing more may
// start; the work is dropped then. How many goroutines there are, the callers decide: requests must not
// wait for each other, so each in flight has one. Mu is held.
func (c *Client) Run(work func()) (started bool) {
	if w := &c.workers; !c.stopped && !w.reuse(work) {
		w.running++
		go c.work(work)
	}
	return !c.stopped
}

// reuse gives work to a goroutine that waits, if there is one.
func (w *workers) reuse(work func()) bool {
	last := len(w.idle) - 1
	if last < 0 {
		return false
	}
	w.idle[last] <- work
	w.idle, w.used = w.idle[:last], true
	return true
}

// work runs one work after the other, until the goroutine is dismissed.
func (c *Client) work(work func()) {
	more := make(chan func(), 1)
	for ok := true; ok; work, ok = <-more {
		if work(); !c.await(more) {
			return
		}
	}
	c.Mu.Lock()
	defer c.unlock()
	c.workers.running--
}

// await waits for work. It reports false if the goroutine must end.
func (c *Client) await(more chan func()) bool {
	c.Mu.Lock()
	defer c.unlock()
	// After stop, which has dismissed those that waited then, nobody would dismiss this one.
	if c.stopped || len(c.workers.idle) == maxIdle {
		c.workers.running--
		return false
	}
	c.workers.idle = append(c.workers.idle, more)
	c.arm()
	return true
}

// arm sets the timer that ends idle goroutines. There is one for all of them, because a timer for each
// piece of work would cost more than a new goroutine. Mu is held.
func (c *Client) arm() {
	w := &c.workers
	if w.armed {
		return
	}
	if w.armed, w.used = true, false; w.timer == nil {
		w.timer = time.AfterFunc(lingering, c.dismissIdle)
	} else {
		w.timer.Reset(lingering)
	}
}

// dismissIdle ends the waiting goroutines, unless the link is busy. Then all of them stay, as many as the
// last bursts of requests needed.
func (c *Client) dismissIdle() {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	w := &c.workers
	if w.armed = false; w.used && len(w.idle) > 0 && !c.stopped {
		c.arm()
		return
	}
	w.dismiss()
}

// dismiss ends the waiting goroutines. Mu is held.
func (w *workers) dismiss() {
	for _, more := range w.idle {
		close(more)
	}
	if w.idle = nil; w.timer != nil {
		w.timer.Stop()
	}
}
