package conn

import "fmt"

// String names a choice for whoever reads a trace.
func (c choice) String() string {
	lane, id, last := c.a, c.b>>1, ""
	if c.b&1 == 1 {
		last = ", its last frame"
	}
	switch c.kind {
	case makesCall:
		return fmt.Sprintf("call %d is made", c.a)
	case callsStale:
		return fmt.Sprintf("call %d is made for the incarnation before", c.a)
	case leaves:
		return fmt.Sprintf("the caller of %d leaves", c.a)
	case notesOnStream:
		return fmt.Sprintf("the handler of question %d notifies on its stream", c.a)
	case returns:
		return fmt.Sprintf("the handler of question %d returns", c.a)
	case empties, isWritable:
		return fmt.Sprintf("%s (%s)", choiceNames[c.kind], [...]string{"none", "one frame", "any"}[c.a])
	case replies, faults, progresses:
		return fmt.Sprintf("%s %d on stream %d%s", choiceNames[c.kind], id, lane, last)
	case notifies, sendsGarbage:
		return fmt.Sprintf("%s on stream %d%s", choiceNames[c.kind], lane, last)
	case asks:
		return fmt.Sprintf("the peer asks question %d on stream %d", c.b, lane)
	case takesBack:
		return fmt.Sprintf("the peer cancels question %d on stream %d%s", id, lane, last)
	case endsOurs:
		return fmt.Sprintf("the peer ends call %d, which stays, on stream %d%s", id, lane, last)
	case fails:
		return fmt.Sprintf("call %d fails, unsent: %v", c.a, c.b == 1)
	case opensLane, losesLane:
		return fmt.Sprintf("%s %d", choiceNames[c.kind], lane)
	case cutsLane:
		return fmt.Sprintf("stream %d is cut, with a delay asked for: %v", lane, c.b == 1)
	case losesLink:
		return fmt.Sprintf("link %d is lost, what it had unsent: %v", c.a, c.b == 1)
	case opensLink, opensNot, shakes, shakesNot, endsInput, closesLink, admits:
		return fmt.Sprintf("%s (link %d)", choiceNames[c.kind], c.a)
	case fires:
		return fmt.Sprintf("%s (%d), with signs of life: %v", choiceNames[c.kind], c.a, c.b == 1)
	case lapses, answersProbe:
		return fmt.Sprintf("%s (%d)", choiceNames[c.kind], c.a)
	default:
		return choiceNames[c.kind]
	}
}

var choiceNames = [choiceKinds]string{
	notes: "a notification is made", noteLeaves: "the notification's caller leaves",
	replies: "an answer to", faults: "an error for", progresses: "progress of", notifies: "a notification", sendsGarbage: "a malformed frame",
	fills: "the link is full", empties: "the link has room", isWritable: "the link says writable, with room",
	oversizes: "the next frame is too large", severs: "the link can send nothing more",
	opensLane: "the link opens stream", losesLane: "the link loses stream",
	opensLink: "a link opens", opensNot: "no link opens", shakes: "the handshake is done", shakesNot: "the handshake fails",
	endsInput: "the peer sends nothing more", closesLink: "the link is closed",
	drains: "drain", stops: "stop", wakes: "wake", fires: "the timer fires", lapses: "time passes, and the timer is late",
	admits: "the gate has a place",
	crowds: "many notifications wait", eases: "few notifications wait", answersProbe: "the peer answers probe",
}

func describeEvent(ev *event) string {
	text := fmt.Sprintf("%s id=%d stream=%d epoch=%d", eventNames[ev.kind], ev.id, ev.stream, ev.epoch)
	if ev.frames > 0 || ev.last {
		text += fmt.Sprintf(" frames=%d last=%v", ev.frames, ev.last)
	}
	if ev.out.frame != nil {
		text += fmt.Sprintf(" out={id=%d stream=%d %q tried=%v attempts=%d}", ev.out.id, ev.out.stream, ev.out.frame, ev.tried, ev.out.attempts)
	}
	return text
}

func describeEffect(fx *effect) string {
	switch fx.kind {
	case transmit:
		return fmt.Sprintf("transmit id=%d stream=%d reply=%v last=%v %q", fx.out.id, fx.out.stream, fx.out.reply, fx.out.last, fx.out.frame)
	case settle:
		return fmt.Sprintf("settle id=%d: %v, %v (%v)", fx.id, fx.cause, fx.delivery, fx.err)
	case transitioned:
		return fmt.Sprintf("transitioned from %s to %s: %v", fx.from, fx.to, fx.reason)
	case grant, endStream, resumeStream:
		return fmt.Sprintf("%s stream=%d frames=%d", effectNames[fx.kind], fx.stream, fx.frames)
	case serve, cancelServing:
		return fmt.Sprintf("%s stream=%d id=%v err=%v", effectNames[fx.kind], fx.incoming.key.stream, fx.incoming.key.id, fx.err)
	default:
		return fmt.Sprintf("%s epoch=%d id=%d grace=%v", effectNames[fx.kind], fx.epoch, fx.id, fx.grace)
	}
}

var eventNames = [...]string{
	started: "started", callMade: "callMade", notificationMade: "notificationMade", callLeft: "callLeft", woken: "woken",
	drainAsked: "drainAsked", stopAsked: "stopAsked", linkOpened: "linkOpened", openFailed: "openFailed",
	handshakeDone: "handshakeDone", handshakeFailed: "handshakeFailed", linkEnded: "linkEnded", linkLost: "linkLost",
	linkGone: "linkGone", replied: "replied", requested: "requested", notified: "notified", progressed: "progressed",
	cancelled: "cancelled", probed: "probed", malformed: "malformed", streamOpened: "streamOpened", streamLost: "streamLost",
	busy: "busy", failed: "failed", writable: "writable", handled: "handled", tick: "tick",
	admitted: "admitted", overdue: "overdue", interrupted: "interrupted",
	crowded: "crowded", eased: "eased",
}
