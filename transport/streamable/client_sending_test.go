package streamable

import (
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// The goroutines of a link are reused. A limited number of them waits for more work,
// and they end if none comes for a while.
//
// Guarantees: G-0050.2
func TestClientWorkersLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newClientLink(&url.URL{Scheme: "http", Host: "localhost"}, http.DefaultClient, nil, 1000)
		counts := func() (running, idle int) {
			synctest.Wait()
			l.Mu.Lock()
			defer l.Mu.Unlock()
			return l.Workers()
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
		for range 3 {
			burst(2)
			if running, idle := counts(); running != 2 || idle != 2 {
				t.Errorf("got %d goroutines of which %d wait, want 2 that wait", running, idle)
			}
			<-time.NewTimer(parts.Lingering / 2).C
		}
		burst(2 * parts.MaxIdle)
		if running, idle := counts(); running != parts.MaxIdle || idle != parts.MaxIdle {
			t.Errorf("got %d goroutines of which %d wait, want %d", running, idle, parts.MaxIdle)
		}
		<-time.NewTimer(3 * parts.Lingering).C
		if running, idle := counts(); running != 0 || idle != 0 {
			t.Errorf("after a while: got %d goroutines of which %d wait, want none", running, idle)
		}
		burst(1)
		err := l.Close(time.Minute)
		if running, idle := counts(); running != 0 || idle != 0 || err != nil {
			t.Errorf("after Close (%[3]v): got %[1]d goroutines of which %[2]d wait, want none", running, idle, err)
		}
	})
}
