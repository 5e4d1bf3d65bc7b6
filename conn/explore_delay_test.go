package conn

import "time"

// toldToWait is the delay that a peer asks for when a handshake fails.
const peerDelay = 3 * time.Second

// A delayBook is when the next attempt may come, by ADR-0001 once more and not by
// what the core says.
type delayRecord struct {
	readyAt   instant // when the present incarnation became ready; 0 if it did not
	doublings uint8   // of the delay, since it was the shortest
	earliest  instant // of the next attempt; 0: at any time
}

// checkDelay holds that no attempt comes before its delay has passed.
func (env *environment) checkDelay(fx *effect) {
	b := &env.delay
	switch {
	case fx.kind == openLink || fx.kind == askPlace:
		if env.now < b.earliest {
			env.fail("an attempt comes %v before its delay has passed", b.earliest-env.now)
		}
	case fx.kind == transitioned && fx.to == Ready:
		b.readyAt = env.now
	case fx.kind == transitioned && fx.to == Backoff:
		b.earliest = env.now + max(env.nextDelay(fx.reason), env.present.timeout)
		b.readyAt = 0
	}
}

// nextDelay is the delay after a loss, where 0.5 is drawn each time.
func (env *environment) nextDelay(why Reason) time.Duration {
	b, o := &env.delay, env.core.options
	if why.Kind == CrashLooping {
		why, _ = why.Err.(Reason)
	}
	if b.readyAt != 0 && env.now-b.readyAt >= o.ProvenAfter {
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

// checkEpoch holds that a frame goes out on the link that it was made for.
func (env *environment) checkEpoch(out outboundFrame) {
	made := env.bound
	switch n := env.answeredBy(out); {
	case n < maxPeerRequests:
		made = env.requests[n].epoch
	case out.notification:
		made = env.calls[0].epoch
	case 0 < out.id && out.id < firstProbe:
		made = env.calls[out.id].epoch
	}
	if made != env.bound {
		env.fail("%q was made in epoch %d and is sent on link %d", out.frame, made, env.bound)
	}
}

// countProbe counts a probe when it is offered first.
func (env *environment) countProbe(id int64) {
	if id == firstProbe+int64(env.probes) {
		env.probes++
	}
}
