package conn

import (
	"time"

	"github.com/bowline-mcp/bowline/conn/internal/slots"
)

// A Wheel holds what many Conns share. To share one, put it into the Options of several
// Conns.
//
//   - Two timers: one tells idle Conns when to probe their peers (Options.Liveness), to a
//     quarter of a second, and one tells busy Conns when they may become idle.
//   - Workers: goroutines that have run a handler, for the next handler of any of the Conns.
//     They end when none of the Conns is busy.
//   - Spare memory: what a Conn gives up when it becomes idle, for the next one that becomes
//     busy. The garbage collector frees what is not used.
//
// The zero value is ready to use. A Wheel must not be copied.
type Wheel struct {
	probing slots.Slots[*loop] // the loops that are to probe their peers
	parking slots.Slots[*loop] // the loops that may park

	workers workers
	spares  spares
}

// set makes the wheel post a tick to a loop after wait, rounded up to a slot. The loop must be
// in no slot.
func (w *Wheel) set(l *loop, wait time.Duration) {
	l.probeSlot, _ = w.probing.Add(l, wait, probeSlotLength, tickToProbe)
}

// unset takes a loop out of its slot, if it is in one.
func (w *Wheel) unset(l *loop) { w.probing.Remove(l, l.probeSlot) }

// tickToProbe and tickToPark post a tick to a loop that is due in a slot, and lend this goroutine to it.
// A loop that has ended takes no tick.
func tickToProbe(l *loop, number int64) { l.lendTick(&event{kind: tick, id: number}) }
func tickToPark(l *loop, number int64)  { l.lendTick(&event{kind: parkDue, id: number}) }

const (
	probeSlotLength = 250 * time.Millisecond
	parkSlotLength  = 20 * time.Millisecond
)
