package conn

import (
	"testing"
	"time"
)

// A call and its answer allocate nothing in the core once it is warm.
//
// Guarantees: G-0003.8
func TestCallAllocatesNothingInTheCore(t *testing.T) {
	d := driveReady(t, Options{})
	caller, id := new(call), int64(0)
	made := event{kind: callMade, timeout: time.Minute, epoch: d.core.epoch}
	answered := event{kind: replied, frames: 1, epoch: d.core.epoch, payload: []byte("{}")}
	once := func() {
		id++
		made.out = outboundFrame{id: id, call: caller}
		answered.id = id
		d.core.step(d.now, &made)
		d.core.step(d.now, &answered)
	}
	if n := testing.AllocsPerRun(1000, once); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
