package courier_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/courier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parcels is a queue of functions.
type parcels struct {
	courier.Courier
	waiting []func()
}

func (p *parcels) add(f func()) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.waiting = append(p.waiting, f)
	p.Start(p.carryNext)
}

func (p *parcels) carryNext() (more bool) {
	p.Mu.Lock()
	if len(p.waiting) == 0 {
		p.End()
		p.Mu.Unlock()
		return false
	}
	next := p.waiting[0]
	p.waiting = p.waiting[1:]
	p.Mu.Unlock()
	next()
	return true
}

// TestCourier carries in order, one at a time, over the end of its goroutine, and
// leaves none behind.
func TestCourier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told := new(parcels), ""
		p.add(func() { told += "a" })
		p.add(func() { told += "b"; runtime.Goexit() })
		p.add(func() { pause(time.Second); told += "c" })
		p.add(func() { told += "d" })
		if p.Await(time.Second / 2) {
			t.Error("awaited what takes longer")
		}
		if !p.Await(time.Second) || told != "abcd" {
			t.Errorf("told %q", told)
		}
		if !p.Await(0) {
			t.Error("there is nobody to wait for")
		}
		p.add(func() { told += "e" })
		if synctest.Wait(); told != "abcde" {
			t.Errorf("told %q", told)
		}
	})
}

func pause(d time.Duration) { <-time.NewTimer(d).C }
