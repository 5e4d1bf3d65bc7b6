package parts

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A bare link has nothing but its goroutines. It is its own receiver.
type bare struct {
	Client
	transport.Receiver
}

func (*bare) IsEmpty() bool         { return true }
func (*bare) AwaitAnswers(error)    {}
func (*bare) Cancel()               {}
func (*bare) EndOthers(error) error { return nil }
func (*bare) Gone()                 {}
func (*bare) Name() string          { return "bare" }
func (*bare) Lost(transport.Loss)   {}

// The goroutines of a link are reused. A limited number of them waits for more work,
// and they end if none comes for a while.
//
// Guarantees: G-0050.2
func TestClientWorkersLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(bare)
		l.Link = l
		l.Bind(l)
		counts := func() (running, idle int) {
			synctest.Wait()
			l.Mu.Lock()
			defer l.Mu.Unlock()
			return l.workers.running, len(l.workers.idle)
		}
		burst := func(n int) {
			var all sync.WaitGroup
			all.Add(n)
			for range n {
				l.Mu.Lock()
				l.Run(func() {
					all.Done()
					all.Wait() // makes them run concurrently
				})
				l.Mu.Unlock()
			}
			all.Wait()
		}
		for n := range 3 {
			// They stay while there is work again and again, however often the time of lingering has passed.
			if running, idle := counts(); n > 0 && (running != 2 || idle != 2) {
				t.Errorf("before burst %d: got %d goroutines of which %d wait, want 2 that wait", n, running, idle)
			}
			burst(2)
			if running, idle := counts(); running != 2 || idle != 2 {
				t.Errorf("got %d goroutines of which %d wait, want 2 that wait", running, idle)
			}
			<-time.NewTimer(lingering/2 + 1).C
		}
		burst(2 * maxIdle)
		if running, idle := counts(); running != maxIdle || idle != maxIdle {
			t.Errorf("got %d goroutines of which %d wait, want %d", running, idle, maxIdle)
		}
		<-time.NewTimer(3 * lingering).C
		if running, idle := counts(); running != 0 || idle != 0 {
			t.Errorf("after a while: got %d goroutines of which %d wait, want none", running, idle)
		}
		burst(1)
		err := l.Close(time.Minute, func() {})
		if running, idle := counts(); running != 0 || idle != 0 || err != nil {
			t.Errorf("after Close (%[3]v): got %[1]d goroutines of which %[2]d wait, want none", running, idle, err)
		}
	})
}
