package stdio

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// The child is gone, and one of its frames comes out of the pipe 99 ms later: a
// descendant that escaped holds the other end. Nobody closes that end.
//
// Guarantees: G-0014.2, G-0014.9
func TestDeadChildsPipeIsDrained(t *testing.T) {
	for _, test := range []struct {
		name    string
		credit  int
		closing bool
		frames  int
		took    time.Duration
	}{
		{"against credit", 2, false, 1, drainTime},
		{"not without credit", 0, false, 0, drainTime},
		{"while closing, against credit", 2, true, 1, drainTime},
		{"while closing, without waiting for credit", 0, true, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, output := deadChild(t)
				if test.closing {
					l.closing.Raise()
				}
				told := newFrames()
				l.Bind(told)
				l.Grant(transport.Main, test.credit)
				start := time.Now()
				l.wire.start()
				go l.supervise()
				wrote := make(chan struct{})
				late := time.AfterFunc(drainTime-time.Millisecond, func() {
					defer close(wrote)
					output.Write([]byte("1\n"))
				})
				<-l.gone
				if took := time.Since(start); took != test.took || len(told.received) != test.frames || len(told.lost) != 1 {
					t.Fatalf("lost after %v with %d frames received", took, len(told.received))
				}
				output.Close()
				if !late.Stop() {
					<-wrote
				}
			})
		})
	}
}

// deadChild is a link to a child that has exited, with the end of its output
// that something else still holds.
func deadChild(t *testing.T) (l *child, output net.Conn) {
	t.Helper()
	in, output := net.Pipe()
	out, _ := net.Pipe()
	errors, errorsEnd := mustPipe(t)
	errorsEnd.Close()
	l = &child{
		wire:      newWire(in, out, 0),
		stderr:    newStderr(errors, nil),
		exit:      &transport.ExitError{},
		exited:    make(chan struct{}),
		abandoned: latch.New(),
		gone:      make(chan struct{}),
	}
	close(l.exited)
	<-l.stderr.done
	return l, output
}
