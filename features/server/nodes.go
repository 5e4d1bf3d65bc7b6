package server

// Changes carries changes between the nodes that serve one endpoint. Implementations must be
// safe for concurrent use. A Server calls Subscribe once, in New, and stop when it closes.
type Changes interface {
	// Publish tells all other nodes of a change. It must not block. The change may be lost
	// on the way; the nodes that may have missed it then receive a Change with Missed.
	Publish(c Change)

	// Subscribe calls f, one call at a time, with each change that another node has
	// published, in the order of each publisher. After stop has returned, f is not called.
	Subscribe(f func(Change)) (stop func())
}

// A Change is what has changed on a node.
type Change struct {
	Tools, Prompts, Resources bool   // the lists that have changed
	URI                       string // the resource that has changed; "" for none
	Task                      string // the task whose status has changed; "" for none

	// Missed says that any changes may have been missed, so everything may have changed. The
	// other fields are zero.
	Missed bool
}
