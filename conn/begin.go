//bowline:pure

package conn

// A place is what an initiator has at its gate. It needs none once it is ready.
type place uint8

const (
	noPlace place = iota
	awaited       // asked for; no link is, and no time runs
	given
)

// begin opens a link for a new incarnation: behind a gate, once that has a
// place.
func (c *core) begin(now instant) {
	c.epoch++
	c.retryAt, c.retryWhy = 0, ""
	if c.options.Gate == nil {
		c.open(now)
		return
	}
	c.place, c.reason = awaited, Reason{Kind: Queued}
	c.emit(effect{kind: askPlace, epoch: c.epoch, reason: c.reason})
}

// onAdmitted hears that the gate has a place, which may be wanted no more.
func (c *core) onAdmitted(now instant) {
	if c.place == awaited {
		c.place, c.reason = given, Reason{Kind: Admitted}
		c.open(now)
	}
}

// open asks for the link. From here on the time runs.
func (c *core) open(now instant) {
	c.initDue = now + c.options.InitTimeout
	c.emit(effect{kind: openLink, epoch: c.epoch, reason: c.reason})
}

// leaveGate gives back the place, or the wait for one.
func (c *core) leaveGate() {
	if c.place != noPlace {
		c.place = noPlace
		c.emit(effect{kind: leaveGate, epoch: c.epoch})
	}
}
