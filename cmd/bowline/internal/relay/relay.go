package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	greetTime = 10 * time.Second // how long a gateway may take to answer the initialize that is repeated
	proven    = 2 * time.Second  // a gateway that lived for less is not followed by another at once
	pause     = time.Second      // between a failed attempt and the next one
)

// A Relay passes messages between one host and the gateway of a file.
type Relay struct {
	// Reach returns a link to the gateway, which it may have to start. It ends when ctx does.
	Reach func(ctx context.Context) (transport.Link, error)

	// Say tells the person at the host what is wrong. It is called on the goroutine of Run.
	Say func(text string)
}

// stages are those of the connection with a gateway.
type stage int

const (
	reaching stage = iota // an attempt is under way: the host waits
	greeting              // the session of the host is begun again: the host waits
	live                  // messages pass
	away                  // the last attempt has failed: requests are refused, until one begins another attempt
)

// A run is a Relay at work. Only the goroutine of Run touches it.
type run struct {
	*Relay
	session *session
	wake    chan struct{}
	host    *end
	gateway *end // nil: there is none
	stage   stage
	reached chan attempt
	cancel  context.CancelFunc // of the attempt; nil: none is under way
	since   time.Time          // when the gateway was reached, or the last attempt has failed
	why     string             // while away
	alarm   *time.Timer        // of the greeting, and of what is finished after the end of the host
	timed   bool               // the host has ended, and the alarm is that of the end
}

type attempt struct {
	link transport.Link
	err  error
}

// Run passes messages until the host closes its side, and then waits for the answers to what it has asked. It returns nil then, and an
// error if the host is lost otherwise or ctx ends. It closes all links.
func (r *Relay) Run(ctx context.Context, host transport.Link) error {
	w := &run{Relay: r, session: newSession(), wake: make(chan struct{}, 1), reached: make(chan attempt, 1), alarm: time.NewTimer(time.Hour)}
	w.alarm.Stop()
	w.host = bind(host, w.wake)
	w.attempt(ctx)
	err := w.loop(ctx)
	w.alarm.Stop()
	return errors.Join(err, w.close())
}

// loop ends with the host or ctx. Everything that waits is here, so that nothing else may block.
func (w *run) loop(ctx context.Context) error {
	for {
		for w.step(ctx) {
		}
		if over, err := w.over(); over {
			return err
		}
		select {
		case <-w.wake:
		case a := <-w.reached:
			w.arrived(a)
		case <-w.alarm.C:
			if w.timed {
				return nil // what has no answer yet ends with its connection
			}
			w.leave("it has not answered initialize")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attempt begins to reach a gateway.
func (w *run) attempt(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.stage = reaching
	go func() {
		link, err := w.Reach(ctx)
		w.reached <- attempt{link, err}
	}()
}

// arrived ends an attempt.
func (w *run) arrived(a attempt) {
	w.cancel()
	w.cancel, w.since = nil, time.Now()
	if a.err != nil {
		w.away(a.err.Error())
		return
	}
	w.gateway = bind(a.link, w.wake)
	if hello := w.session.hello(); hello != nil {
		if w.stage = greeting; !w.timed {
			w.alarm.Reset(greetTime)
		}
		w.toGateway(transport.Outbound{Frame: hello})
		return
	}
	w.resume()
}

// away refuses requests from now on.
func (w *run) away(why string) {
	w.stage, w.why = away, why
	w.Say("there is no gateway: " + why)
	w.toHost(w.session.unreached(why)...)
}

// resume lets messages pass.
func (w *run) resume() {
	w.stage = live
	if !w.timed {
		w.alarm.Stop()
	}
	toGateway, toHost := w.session.resume()
	w.toHost(toHost...)
	w.toGateway(toGateway...)
}

// step does what can be done without waiting, and reports whether there may be more. What has come from the gateway is before its loss.
func (w *run) step(ctx context.Context) bool {
	w.toHost()
	if w.gateway != nil {
		w.toGateway()
		if w.fromGateway() {
			return true
		}
		if _, loss := w.gateway.arrived.state(); loss != nil {
			w.lost(ctx, loss)
			return true
		}
	}
	return w.fromHost(ctx)
}

// fromGateway takes a frame of the gateway, if the host has read those before.
func (w *run) fromGateway() bool {
	if len(w.host.queue) > 0 {
		return false
	}
	frame, ok := w.gateway.next()
	switch {
	case !ok:
		w.gateway.grant()
		return false
	case w.stage == greeting:
		if is, err := w.session.greeted(frame); err != nil {
			w.leave(err.Error())
		} else if is {
			w.resume()
		}
	default:
		w.toHost(w.session.fromGateway(frame)...)
		w.toGateway(w.session.doubt()...)
	}
	return true
}

// fromHost takes a frame of the host, if somebody can have it. While there is no gateway a request begins an attempt, and waits for it.
func (w *run) fromHost(ctx context.Context) bool {
	switch {
	case w.stage == away && time.Since(w.since) >= pause && w.host.arrived.waiting():
		w.attempt(ctx)
		return false
	case w.stage == reaching, w.stage == greeting, w.stage == live && len(w.gateway.queue) > 0, len(w.host.queue) > 0:
		return false
	}
	frame, ok := w.host.next()
	switch {
	case !ok:
		w.host.grant()
		return false
	case frame == nil:
		w.Say("a message of the host was too long, and is lost")
		return true
	}
	for _, message := range w.session.each(frame) {
		w.passOn(message)
	}
	return true
}

// passOn gives a message of the host to the gateway, or refuses it while there is none.
func (w *run) passOn(message []byte) {
	if w.stage != away {
		w.toGateway(w.session.fromHost(message)...)
	} else if answer := w.session.refuse(message, w.why); answer != nil {
		w.toHost(answer)
	}
}

// lost ends the calls of a gateway that is gone, and reaches for another one. One that was gone at once would be gone again.
func (w *run) lost(ctx context.Context, loss *transport.Loss) {
	unsent := make(map[transport.Tag]bool)
	for _, tag := range loss.Unsent {
		unsent[tag] = true
	}
	for _, o := range w.gateway.queue {
		unsent[o.Tag] = true
	}
	why := "the connection was lost: " + loss.Reason.Error()
	if errors.Is(loss.Reason, transport.ErrPeerClosed) {
		why = "it has ended"
	}
	_ = w.gateway.link.Close(0) // it is lost
	w.gateway = nil
	w.toHost(w.session.lost(unsent, why)...)
	if !w.timed {
		w.alarm.Stop()
	}
	if time.Since(w.since) < proven {
		w.since = time.Now()
		w.away(why + " at once")
		return
	}
	w.attempt(ctx)
}

// leave gives up a gateway with which the session of the host cannot go on.
func (w *run) leave(why string) {
	_ = w.gateway.link.Close(0) // nothing of it is left to tell
	w.gateway = nil
	w.toHost(w.session.lost(nil, why)...)
	w.since = time.Now()
	w.away(why)
}

// toHost sends messages to the host. What it has no room for delays what comes from the gateway.
func (w *run) toHost(frames ...[]byte) {
	out := make([]transport.Outbound, len(frames))
	for i, frame := range frames {
		out[i].Frame = frame
	}
	w.host.send(out...) // what is too long for the host was too long for this side before
}

// toGateway sends messages to the gateway. What it has no room for delays what comes from the host, which is told of a request that no gateway takes.
func (w *run) toGateway(frames ...transport.Outbound) {
	for _, tag := range w.gateway.send(frames...) {
		if answer := w.session.tooLong(tag); answer != nil {
			w.toHost(answer)
		}
	}
}

// over reports whether everything is done: the host is lost, or has closed its side and has all its answers.
func (w *run) over() (bool, error) {
	ended, loss := w.host.arrived.state()
	served := w.stage == away || w.stage == live && len(w.gateway.queue) == 0 && !w.session.busy()
	switch {
	case loss != nil:
		return true, fmt.Errorf("the host is gone: %w", loss.Reason)
	case !ended:
		return false, nil
	case served && len(w.host.queue) == 0:
		return true, nil
	case !w.timed:
		w.timed = true
		w.alarm.Reset(process.FinishGrace)
	}
	return false, nil
}

// close ends what is left: the attempt, and both links.
func (w *run) close() error {
	var left error
	if w.cancel != nil {
		w.cancel()
		if a := <-w.reached; a.link != nil {
			left = a.link.Close(0)
		}
	}
	if w.gateway != nil {
		left = errors.Join(left, w.gateway.link.Close(process.EndGrace))
	}
	return errors.Join(left, w.host.link.Close(process.EndGrace))
}
