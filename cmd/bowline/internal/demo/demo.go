// Package demo shows the main job: a real server process under supervision is
// killed while many goroutines call it, every caller is told one true thing,
// and the server comes back.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Options configure a demo. The zero value of each field means its default.
type Options struct {
	Server  stdio.Command // the server to start: required
	Out     io.Writer     // where the story is told: required
	Callers int           // goroutines that call; 50
	Before  time.Duration // calls before the kill; 1.5 s
	After   time.Duration // calls after the server is back; 1.5 s
}

func (o *Options) setDefaults() {
	o.Callers = max(o.Callers, 0)
	if o.Callers == 0 {
		o.Callers = 50
	}
	if o.Before == 0 {
		o.Before = 1500 * time.Millisecond
	}
	if o.After == 0 {
		o.After = 1500 * time.Millisecond
	}
}

// A show is one run of the demo.
type show struct {
	options    Options
	timeline   *timeline
	children   *children
	ledger     *ledger
	supervisor *supervisor.Supervisor
	session    *client.Session
}

// Run plays the demo. It returns nil only when every call ended exactly once,
// the server came back, and nothing is left over.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	goroutines := runtime.NumGoroutine()
	s := &show{options: o, timeline: newTimeline(o.Out), children: new(children), ledger: newLedger()}
	if err := s.play(ctx); err != nil {
		return err
	}
	report := s.report(goroutines)
	report.print(o.Out)
	return report.verdict()
}

func (s *show) play(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	enough := make(chan struct{})
	var callers sync.WaitGroup
	for range s.options.Callers {
		callers.Go(func() { s.call(ctx, enough) })
	}
	s.timeline.say("%d goroutines call a tool that takes 200 ms, again and again", s.options.Callers)
	err := s.killAndRecover(ctx)
	close(enough)
	callers.Wait()
	return errors.Join(err, s.close(ctx))
}

// start connects to the server, under supervision.
func (s *show) start(ctx context.Context) error {
	s.supervisor = supervisor.New(supervisor.Options{Name: "demo"})
	command := s.options.Server
	command.Started = s.children.add
	c := client.New(protocol.Implementation{Name: "bowline demo", Version: "1"}, client.Options{
		Supervisor: s.supervisor,
		Conn:       conn.Options{Name: "server", Hooks: telemetry.Tee(s.timeline.hooks(), s.ledger.hooks())},
	})
	s.timeline.say("starting the server: %s", command.Path)
	session, err := c.Connect(ctx, &command)
	if err != nil {
		return err
	}
	s.session = session
	if err := s.timeline.awaitReady(ctx, 0); err != nil {
		return err
	}
	s.timeline.say("%s answers, protocol %s, process %d",
		session.Server().ServerInfo.Name, session.Server().ProtocolVersion, s.children.latest())
	return nil
}

// call makes calls until it is enough. One that surely did not run is repeated
// when there is a server again.
func (s *show) call(ctx context.Context, enough <-chan struct{}) {
	session := s.session
	for {
		select {
		case <-enough:
			return
		case <-ctx.Done():
			return
		default:
		}
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"seconds":0.2}`)})
		s.ledger.record(err)
		session = s.session.With(client.CallOptions{WaitForReady: conn.NotExecuted(err)})
	}
}

// killAndRecover kills the server mid-call, and waits until it is back and has
// served for a while.
func (s *show) killAndRecover(ctx context.Context) error {
	if err := pause(ctx, s.options.Before); err != nil {
		return err
	}
	epoch := s.session.Conn().Status().Epoch
	victim := s.children.latest()
	s.ledger.chapter()
	s.timeline.say("SIGKILL to process %d, with calls in flight", victim)
	if err := kill(victim); err != nil {
		return fmt.Errorf("demo: kill process %d: %w", victim, err)
	}
	if err := s.timeline.awaitReady(ctx, epoch); err != nil {
		return err
	}
	s.timeline.say("process %d serves in its place; meanwhile callers were told:", s.children.latest())
	for _, line := range s.ledger.chapter() {
		s.timeline.add("    " + line)
	}
	return pause(ctx, s.options.After)
}

func (s *show) close(ctx context.Context) error {
	s.timeline.say("closing")
	return errors.Join(s.session.Close(ctx), s.supervisor.Stop(ctx))
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
