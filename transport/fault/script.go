package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Script is a peer that does what a test says, step by step:
//
//	script := fault.Script{
//		fault.Expect("initialize"), fault.Answer(`{"ok":true}`),
//		fault.Expect("tools/call"), fault.Lose(),
//	}
//	err := script.Serve(ctx, link)
type Script []Step

// A Step is one thing that the peer expects or does.
type Step struct {
	name string
	take func(context.Context, *peer) error
}

// Serve takes over a link, does the steps in order, and closes the link with a
// grace of one second. It grants credit for one frame at a time, when a step needs
// it. The error says which step failed and why: an unexpected frame came, the link
// was lost, or ctx ended.
func (s Script) Serve(ctx context.Context, link transport.Link) error {
	p := &peer{link: link, frames: make(chan []byte, 1), lost: make(chan struct{}), writable: make(chan struct{}, 1)}
	link.Bind(p)
	for i, step := range s {
		if err := step.take(ctx, p); err != nil {
			link.Close(0)
			return fmt.Errorf("fault: step %d, %s: %w", i+1, step.name, err)
		}
	}
	return link.Close(time.Second)
}

// Expect waits for a request or notification with that method. Answer, Echo and
// Refuse respond to the last request that was expected.
func Expect(method string) Step {
	return Step{"expect " + method, func(ctx context.Context, p *peer) error {
		m, err := p.next(ctx)
		if err != nil {
			return err
		}
		if m.Method != method {
			return fmt.Errorf("got %s", p.frame)
		}
		if m.Kind == jsonrpc.KindRequest {
			p.request = m
		}
		return nil
	}}
}

// ExpectFrame waits for exactly this frame.
func ExpectFrame(frame string) Step {
	return Step{"expect " + frame, func(ctx context.Context, p *peer) error {
		if _, err := p.next(ctx); err != nil {
			return err
		}
		if string(p.frame) != frame {
			return fmt.Errorf("got %s", p.frame)
		}
		return nil
	}}
}

// ExpectMessage waits for a frame that is the same JSON value as message.
func ExpectMessage(message string) Step {
	return Step{"expect " + message, func(ctx context.Context, p *peer) error {
		if err := p.receive(ctx); err != nil {
			return err
		}
		if !sameJSON(p.frame, []byte(message)) {
			return fmt.Errorf("got %s", p.frame)
		}
		return nil
	}}
}

// sameJSON reports whether two texts are the same JSON value: the order of members
// and white space do not count.
func sameJSON(a, b []byte) bool {
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&values[i]) != nil || d.More() {
			return bytes.Equal(a, b)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// Answer sends a result, any JSON text, for the last request that was expected.
func Answer(result string) Step {
	return Step{"answer " + result, func(ctx context.Context, p *peer) error {
		return p.send(ctx, jsonrpc.AppendResult(nil, p.request.ID, json.RawMessage(result)))
	}}
}

// Echo sends the params of the last request that was expected as its result.
func Echo() Step {
	return Step{"echo", func(ctx context.Context, p *peer) error {
		return p.send(ctx, jsonrpc.AppendResult(nil, p.request.ID, p.request.Params))
	}}
}

// Refuse sends an error for the last request that was expected.
func Refuse(code int64, message string) Step {
	return Step{"refuse", func(ctx context.Context, p *peer) error {
		return p.send(ctx, jsonrpc.AppendError(nil, p.request.ID, &jsonrpc.Error{Code: code, Message: message}))
	}}
}

// Say sends a frame as it is, whether or not it is a valid message.
func Say(frame string) Step {
	return Step{"say " + frame, func(ctx context.Context, p *peer) error { return p.send(ctx, []byte(frame)) }}
}

// Wait lets time pass.
func Wait(d time.Duration) Step {
	return Step{"wait", func(ctx context.Context, _ *peer) error { return wait.Sleep(ctx, d) }}
}

// Lose closes the link immediately. Queued frames are lost.
func Lose() Step {
	return Step{"lose", func(_ context.Context, p *peer) error { return p.link.Close(0) }}
}

// AwaitLoss waits until the other side has closed the link.
func AwaitLoss() Step {
	return Step{"await loss", func(ctx context.Context, p *peer) error {
		select {
		case <-p.lost:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

// ExpectLoss waits until the other side has closed the link, and fails if a frame
// comes first.
func ExpectLoss() Step {
	return Step{"expect loss", func(ctx context.Context, p *peer) error {
		switch err := p.receive(ctx); {
		case err == nil:
			return fmt.Errorf("got %s", p.frame)
		case errors.Is(err, errLost):
			return nil
		default:
			return err
		}
	}}
}

// errLost says that the link was lost while the peer waited.
var errLost = errors.New("the link was lost")

// A peer is the receiver of the link that a script serves.
type peer struct {
	link     transport.Link
	frames   chan []byte // holds at most one frame, because the credit is one
	writable chan struct{}
	lost     chan struct{}
	once     sync.Once
	reason   error // why the link was lost; set before lost is closed

	frame   []byte          // the last frame received
	request jsonrpc.Message // the last request expected
}

// next receives one frame, for one credit, and decodes it.
func (p *peer) next(ctx context.Context) (jsonrpc.Message, error) {
	if err := p.receive(ctx); err != nil {
		return jsonrpc.Message{}, err
	}
	return jsonrpc.Decode(p.frame, jsonrpc.Limits{})
}

func (p *peer) receive(ctx context.Context) error {
	p.link.Grant(transport.Main, 1)
	select {
	case p.frame = <-p.frames:
		return nil
	default:
	}
	select {
	case p.frame = <-p.frames:
		return nil
	case <-p.lost:
		return fmt.Errorf("%w: %w", errLost, p.reason)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send waits while the link is busy.
func (p *peer) send(ctx context.Context, frame []byte) error {
	for {
		err := p.link.Send(outboundOf(transport.Main, frame))
		if !errors.Is(err, transport.ErrBusy) {
			return err
		}
		select {
		case <-p.writable:
		case <-p.lost:
			return fmt.Errorf("%w: %w", errLost, p.reason)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *peer) Receive(in transport.Inbound) { p.frames <- in.Frame } // the channel has room, because the link had credit for one frame

func (p *peer) Writable() {
	select {
	case p.writable <- struct{}{}:
	default: // a token is there already
	}
}

func (p *peer) Lost(loss transport.Loss) {
	p.once.Do(func() {
		p.reason = loss.Reason
		close(p.lost)
	})
}

func (p *peer) Ended() { p.Lost(transport.Loss{Reason: transport.ErrPeerClosed}) }

func (p *peer) StreamOpened(transport.Stream, transport.Tag) {}
func (p *peer) StreamLost(transport.StreamLoss)              {}
func (p *peer) Failed(transport.Failure)                     {}
