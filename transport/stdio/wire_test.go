package stdio

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// Close asks the peer to end, then forces it, and gives up, at fixed parts of its
// grace.
//
// Guarantees: G-0014.7
func TestEscalationKeepsItsTimes(t *testing.T) {
	for _, test := range []struct {
		name       string
		grace, end time.Duration // end: when the peer ends
		want       []string
	}{
		{"goes by itself", 100 * time.Millisecond, 20 * time.Millisecond, []string{"done 20ms"}},
		{"ends when asked", 100 * time.Millisecond, 50 * time.Millisecond, []string{"ask 30ms", "done 50ms"}},
		{"ends when forced", 100 * time.Millisecond, 80 * time.Millisecond, []string{"ask 30ms", "force 70ms", "done 80ms"}},
		{"is not asked without grace", 0, time.Millisecond, []string{"force 0s", "done 1ms"}},
		{"is not asked with less", -time.Hour, time.Millisecond, []string{"force 0s", "done 1ms"}},
		{"never ends", time.Second, time.Hour, []string{"ask 300ms", "force 700ms", "given up 5.7s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				if got := escalationSteps(test.grace, test.end); !slices.Equal(got, test.want) {
					t.Fatalf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

func escalationSteps(grace, end time.Duration) (steps []string) {
	start := time.Now()
	log := func(step string) { steps = append(steps, fmt.Sprint(step, " ", time.Since(start))) }
	done := make(chan struct{})
	timer := time.AfterFunc(end, func() { close(done) })
	defer timer.Stop()
	if escalate(done, grace, func() { log("ask") }, func() { log("force") }) {
		log("done")
	} else {
		log("given up")
	}
	return steps
}

// LastRead is the time of the last bytes that came in.
//
// Guarantees: G-0025.2
func TestLastReadIsTheTimeOfTheLastBytes(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	if is := transport.LinkTraitsOf(p.Link); !is.LastRead.IsZero() || !is.RecordsReads {
		t.Errorf("got the traits %+v before any bytes came", is)
	}
	before := time.Now()
	p.send("four")
	p.want("four")
	if last := transport.LinkTraitsOf(p.Link).LastRead; last.Before(before) || last.After(time.Now()) {
		t.Errorf("got the last time %v, want after %v", last, before)
	}
	p.close(hangGuard)
}

// countingWorker is a receiver that has work for each frame.
type countingWorker struct {
	*frames
	owed   int // frames without Work; used by the goroutine that reads
	worked chan int
}

func (w *countingWorker) Receive(in transport.Inbound) {
	if in.Work {
		w.owed++
	}
	w.frames.Receive(in)
}

func (w *countingWorker) StreamBegun(transport.Stream) bool { return false }

func (w *countingWorker) Serve(bool, func()) { w.Work(1) }

func (w *countingWorker) Work(int) {
	w.worked <- w.owed
	w.owed = 0
}

// Work is called on the goroutine that reads, once for each announced piece of work.
//
// Guarantees: G-0051.4
func TestAWorkerWorksWhereFramesAreRead(t *testing.T) {
	link := mustOpen(t, roleCommand(t, "echo"))
	defer link.Close(0)
	to := &countingWorker{newFrames(), 0, make(chan int, 4)}
	link.Bind(to)
	link.Grant(transport.Main, 3)
	for range 3 {
		if err := link.Send(transport.Outbound{Frame: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		if owed, _ := receive(t, to.worked, "Work"); owed != 1 || len(to.received) == 0 {
			t.Fatalf("Work was called for %d announced frames, want 1", owed)
		}
		<-to.received
	}
}
