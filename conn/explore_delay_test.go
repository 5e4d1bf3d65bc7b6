package conn

import "time"

// toldToWait is the delay that a peer asks for when a handshake fails.
const toldToWait = 3 * time.Second

// A delayBook is when the next attempt may come, by ADR-0001 once more and not by
// what the core says.
type delayBook struct {
	readyAt   instant // when the present incarnation became ready; 0 if it did not
	doublings uint8   // of the delay, since it was the shortest
	earliest  instant // of the next attempt; 0: at any time
}

// checkDelay holds that no attempt comes before its delay has passed.
func (w *scene) checkDelay(fx *effect) {
	b := &w.delay
	switch {
	case fx.kind == openLink || fx.kind == askPlace:
		if w.now < b.earliest {
			w.wrong("an attempt comes %v before its delay has passed", b.earliest-w.now)
		}
	case fx.kind == transitioned && fx.to == Ready:
		b.readyAt = w.now
	case fx.kind == transitioned && fx.to == Backoff:
		b.earliest = w.now + max(w.nextDelay(fx.reason), w.present.timeout)
		b.readyAt = 0
	}
}

// nextDelay is the delay after a loss, where 0.5 is drawn each time.
func (w *scene) nextDelay(why Reason) time.Duration {
	b, o := &w.delay, w.core.options
	if why.Kind == CrashLooping {
		why, _ = why.Err.(Reason)
	}
	if b.readyAt != 0 && w.now-b.readyAt >= o.ProvenAfter {
		b.doublings = 0
	}
	if !why.isTemporary() {
		return o.BackoffMax
	}
	d := float64(min(o.BackoffMin<<b.doublings, o.BackoffMax))
	if o.BackoffMin<<b.doublings < o.BackoffMax {
		b.doublings++
	}
	low, high := max(d*(1-o.BackoffJitter), float64(o.BackoffMin)), min(d*(1+o.BackoffJitter), float64(o.BackoffMax))
	return time.Duration(low + (high-low)/2)
}

// checkOwner holds that a frame goes out on the link that it was made for.
func (w *scene) checkOwner(out outboundFrame) {
	made := w.bound
	switch n := w.questionOf(out); {
	case n < questions:
		made = w.questions[n].epoch
	case out.notification:
		made = w.calls[0].epoch
	case 0 < out.id && out.id < firstProbe:
		made = w.calls[out.id].epoch
	}
	if made != w.bound {
		w.wrong("%q was made in epoch %d and is sent on link %d", out.frame, made, w.bound)
	}
}

// countProbe counts a probe when it is offered first.
func (w *scene) countProbe(id int64) {
	if id == firstProbe+int64(w.probes) {
		w.probes++
	}
}
