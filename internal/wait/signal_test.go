package wait_test

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSignalFiresForThoseWhoWaitBeforeAndAfter(t *testing.T) {
	var s wait.Signal
	before := s.Wait()
	if s.HasFired() || wait.IsClosed(before) {
		t.Error("the signal fired too early")
	}
	var firing sync.WaitGroup
	for range 3 {
		firing.Go(s.Fire)
	}
	<-before
	firing.Wait()
	if !s.HasFired() || !wait.IsClosed(s.Wait()) {
		t.Error("the signal has not fired")
	}
}

func TestSignalThatNobodyWaitedFor(t *testing.T) {
	var s, other wait.Signal
	s.Fire()
	if !wait.IsClosed(s.Wait()) || !s.HasFired() {
		t.Error("the signal has not fired")
	}
	if wait.IsClosed(other.Wait()) {
		t.Error("another signal has fired")
	}
	if allocated := testing.AllocsPerRun(10, func() {
		var s wait.Signal
		s.Fire()
		s.Wait()
	}); allocated > 1 { // the Signal itself
		t.Errorf("%v allocations", allocated)
	}
}
