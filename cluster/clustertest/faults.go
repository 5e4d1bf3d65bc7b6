package clustertest

import "time"

// An Operation is something that an Engine sends or receives.
type Operation struct {
	// Name is that of a method of cluster.Engine or cluster.Bucket in lower case: "create",
	// "update", "put", "delete", "get", "keys", "bucket", "publish", "subscribe", "request",
	// "collect", "answer". For what an Engine receives it is "message" for a message that was
	// subscribed, "question" for a request, "response" for the response to one, which its
	// sender sends, and "change" for what a Watch yields.
	Name    string
	Subject string // or the name of the bucket
	Key     string // or the prefix
}

// A Fault is what happens to an Operation. The zero value: it arrives at once.
type Fault struct {
	Delay       time.Duration // until it arrives
	DelayResult time.Duration // from then until the result arrives at the caller
	Lose        bool          // it does not arrive. A Watch that has lost a change yields everything again.
	LoseResult  bool          // it arrives, and the result does not
	Double      bool          // it arrives twice

	// Cut cuts the connection of this Engine: with Lose when it is sent, and otherwise
	// when it has arrived. If Delay is set, that is later.
	Cut bool
}

// Faults makes decide, from now on, what happens to each operation of this Engine; nil ends that. It is
// called while the Service is locked, one call at a time, and must call no method of this package.
func (e *Engine) Faults(decide func(Operation) Fault) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	e.faults = decide
}

func (e *Engine) fault(op Operation) Fault {
	if e.faults == nil {
		return Fault{}
	}
	return e.faults(op)
}

// Cut cuts the connection: nothing passes any more, and what is on its way is lost. Options.Silence
// later the Engine notices it.
func (e *Engine) Cut() {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	e.cutOff()
}

func (e *Engine) cutOff() {
	if e.cut || e.closed {
		return
	}
	e.interrupt()
	if e.service.options.Silence == 0 {
		e.notice()
		return
	}
	e.silence = time.AfterFunc(e.service.options.Silence, func() {
		e.service.mu.Lock()
		defer e.service.mu.Unlock()
		e.notice()
	})
}

// Heal restores a connection that was cut. It also counts as an interruption if the Engine had
// not noticed it yet.
func (e *Engine) Heal() {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	if e.cut && !e.closed {
		e.notice()
		e.resume()
	}
}

// Freeze makes Get, Keys and Watch of this Engine show the present state until Thaw, whatever is
// written later, and whatever expires. Writes go on, and are decided by the latest values.
func (e *Engine) Freeze() {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	e.service.expire()
	e.frozen = map[string]*store{}
	for name, b := range e.service.buckets {
		e.frozen[name] = b.clone()
	}
}

// Thaw ends what Freeze began. Each Watch yields everything again.
func (e *Engine) Thaw() {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	if e.frozen == nil {
		return
	}
	e.frozen = nil
	for _, w := range e.watches {
		e.refresh(w)
	}
}

// Deny makes everything that this Engine sends fail with ErrDenied, as if its permissions had
// been removed, or ends that. It still receives what it has subscribed and watches.
func (e *Engine) Deny(denied bool) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	e.denied = denied
}
