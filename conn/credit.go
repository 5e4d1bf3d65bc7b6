//bowline:pure

package conn

import "github.com/bowline-mcp/bowline/transport"

// credit counts the frames processed but not granted again yet: for the rest
// of their step, or for as long as replies pile up behind a busy link, so that
// a peer that asks without reading is asked to wait (ADR-0004).
type credit struct {
	withheld int
}

// grantCredit ends a step: what its frames used is given back.
func (c *core) grantCredit() {
	if c.credit.withheld == 0 || c.outbound.congested() {
		return
	}
	if state := c.state(); state == Initializing || state == Ready {
		c.emit(effect{kind: grant, epoch: c.epoch, stream: transport.Main, frames: c.credit.withheld})
	}
	c.credit.withheld = 0
}
