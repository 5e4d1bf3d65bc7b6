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
	probing slots.Slots[ticked] // the loops that are to probe their peers
	parking slots.Slots[ticked] // the loops that may park

	workers workers
	pools   pools
}

// A ticked is a loop as a Wheel knows it. lendTick runs on the goroutine of the Wheel's timer, and
// must not block: the loops behind it wait. It does not take the event itself, which would then
// be on the heap.
type ticked interface {
	lendTick(kind eventKind, slot int64)
}

// tickToProbe and tickToPark post a tick to a loop that is due in a slot, and lend this goroutine to it.
// A loop that has ended takes no tick.
func tickToProbe(l ticked, number int64) { l.lendTick(tick, number) }
func tickToPark(l ticked, number int64)  { l.lendTick(parkDue, number) }

const (
	probeSlotLength = 250 * time.Millisecond
	parkSlotLength  = 20 * time.Millisecond
)
