//bowline:pure

package supervisor

// A State is where a child, or a supervisor, is in its life.
type State string

const (
	Waiting  State = "waiting"  // it is started when those before it have been
	Starting State = "starting" // its Init runs
	Running  State = "running"
	Draining State = "draining" // it finishes what it has begun
	Stopping State = "stopping" // it was told to stop and still runs
	Stopped  State = "stopped"  // over: it was stopped, or returned without an error
	Failed   State = "failed"   // over: it failed and was not restarted
)
