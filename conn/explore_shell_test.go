package conn

import (
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/transport"
)

// happen steps the core as the shell does: what the link did not take goes
// back at once, in the order it was offered.
func (w *scene) happen(ev event) {
	w.feed(ev)
	for len(w.returned) > 0 {
		ev := w.returned[0]
		w.returned = w.returned[1:]
		w.feed(ev)
	}
	w.returned = nil
}

func (w *scene) feed(ev event) {
	if w.talks {
		w.said = append(w.said, fmt.Sprintf("  step %s", describeEvent(&ev)))
	}
	w.present = ev
	effects := w.core.step(w.now, &ev)
	for i := range effects {
		w.perform(&effects[i])
	}
	w.checkStep(&ev, effects)
}

// transmit offers a frame to the link, behind what it did not take.
func (w *scene) transmit(fx *effect) {
	out, lane := fx.out, &w.lanes[fx.out.stream]
	switch {
	case len(w.returned) > 0:
		w.returned = append(w.returned, event{kind: busy, epoch: fx.epoch, out: out, random: 0.5})
	case out.stream > ownLanes && (lane.over || lane.ended):
		w.unroutable(out)
		w.returned = append(w.returned, event{kind: failed, epoch: fx.epoch, out: out, err: transport.ErrNoRoute, unsent: true})
	case w.severed:
		w.returned = append(w.returned, event{kind: failed, epoch: fx.epoch, out: out, err: transport.ErrClosed, unsent: true})
	case w.oversize && (!out.reply || !out.answers.IsZero()):
		w.oversize = false
		if n := w.questionOf(out); n < questions {
			w.questions[n].large = true
		}
		w.returned = append(w.returned, event{kind: failed, epoch: fx.epoch, out: out, err: errLarge, unsent: true})
	case w.room == full:
		w.returned = append(w.returned, event{kind: busy, epoch: fx.epoch, out: out, tried: true, moved: w.moved, random: 0.5})
		w.moved, w.refused = false, true
	default:
		w.taken(out)
	}
}

var (
	errGone  = errors.New("gone")
	errLarge = errors.New("too large")
)

// taken has the link take a frame over.
func (w *scene) taken(out outboundFrame) {
	w.moved = true
	if w.room == single {
		w.room = full
	}
	switch {
	case out.notification:
		w.settleCall(0)
	case out.reply:
		w.answer(out)
	case out.id >= firstProbe:
	case out.id != 0:
		w.calls[out.id].taken = true
	}
	if out.last {
		w.endLane(out.stream)
	}
}
