package conn

import "time"

// peerDelay is the delay that the peer asks for when a handshake fails.
const peerDelay = 3 * time.Second

// A delayRecord says when the next attempt may come. It is computed from ADR-0001, independently of
// the core.
type delayRecord struct {
	readyAt   instant // when the present incarnation became ready; 0 if it did not
	doublings uint8   // how often the delay has doubled
	earliest  instant // when the next attempt may come; 0: at any time
}

// checkDelay checks that no attempt comes before its delay has passed.
func (env *environment) checkDelay(fx *effect) {
	b := &env.delay
	switch {
	case fx.kind == openLink || fx.kind == askPlace:
		if env.now < b.earliest {
			env.fail("the next attempt comes %v before its delay has passed", b.earliest-env.now)
		}
	case fx.kind == transitioned && fx.to == Ready:
		b.readyAt = env.now
	case fx.kind == transitioned && fx.to == Backoff:
		b.earliest = env.now + max(env.nextDelay(fx.reason), env.present.timeout)
		b.readyAt = 0
	}
}

// nextDelay returns the delay after a loss. The random number is always 0.5.
func (env *environment) nextDelay(why Reason) time.Duration {
	b, o := &env.delay, env.core.options
	if why.Kind == CrashLooping {
		why, _ = why.Err.(Reason)
	}
	proven := b.readyAt != 0 && env.now-b.readyAt >= o.ProvenAfter
	if proven {
		b.doublings = 0
	}
	switch {
	case !why.isTemporary():
		return o.BackoffMax
	case proven:
		return min(100*time.Millisecond, o.BackoffMin) / 2
	}
	d := float64(min(o.BackoffMin<<b.doublings, o.BackoffMax))
	if o.BackoffMin<<b.doublings < o.BackoffMax {
		b.doublings++
	}
	low, high := max(d*(1-o.BackoffJitter), float64(o.BackoffMin)), min(d*(1+o.BackoffJitter), float64(o.BackoffMax))
	return time.Duration(low + (high-low)/2)
}

// checkEpoch checks that a frame is sent on the link of the incarnation that it was made for.
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
		env.fail("%q was made for epoch %d and is sent on link %d", out.frame, made, env.bound)
	}
}

// countProbe counts a probe when it is offered for the first time.
func (env *environment) countProbe(id int64) {
	if id == firstProbe+int64(env.probes) {
		env.probes++
	}
}
