// The example fleet has sessions with twenty servers in two regions. README.md explains
// it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/supervisor"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run shows a fleet from its start to its end, step by step.
func run(ctx context.Context, out io.Writer) error {
	f := newFleet(out)
	for _, step := range []func(context.Context) error{f.start, f.lose, f.contain, f.drain} {
		if err := step(ctx); err != nil {
			return errors.Join(err, f.tree.Stop(context.WithoutCancel(ctx)))
		}
	}
	return nil
}

// start connects all sessions, of which the gate lets four connect at the same time. Then it looks up one by its
// name, as a part of the program would that has not created it.
func (f *fleet) start(ctx context.Context) error {
	err := errors.Join(f.join(ctx, "east", f.audit), f.join(ctx, "west", func(ctx context.Context) error { <-ctx.Done(); return nil }))
	for _, c := range f.names.All() {
		err = errors.Join(err, c.AwaitReady(ctx))
	}
	fmt.Fprintf(f.out, "%d children run in 2 regions, and %d sessions have names\n", children, f.names.Len())
	fmt.Fprintln(f.out, "west-07 answers:", f.answer(ctx, "west-07", "name"))
	return err
}

// lose stops one server, prints the tree, and starts the server again.
func (f *fleet) lose(ctx context.Context) error {
	down := f.sites["west-03"]
	lost, _ := f.names.Lookup("west-03")
	if err := down.server.Swap(nil).Close(ctx); err != nil {
		return err
	}
	for status := lost.Status(); status.State != conn.Backoff; status = lost.Status() {
		<-status.Changed()
	}
	_, err := f.call(ctx, "west-03", "name", client.CallOptions{})
	fmt.Fprintln(f.out, "west-03 is down; its call was not executed:", conn.NotExecuted(err))
	fmt.Fprintln(f.out, f.tree.Report())
	down.start()
	lost.Wake() // the server is back, so there is no need to wait for the backoff
	fmt.Fprintln(f.out, "west-03 answers:", f.answer(ctx, "west-03", "name"))
	return nil
}

// contain makes a worker in the region east fail too often. The region is restarted, and
// the region west is not affected.
func (f *fleet) contain(ctx context.Context) error {
	for range restarts + 1 {
		f.faults <- struct{}{}
	}
	if err := f.awaitChildren(ctx, children, supervisor.Running, 1); err != nil {
		return err
	}
	fmt.Fprintln(f.out, "the auditor of east has failed too often, so east was restarted")
	for _, name := range []string{"east-07", "west-07"} {
		// The handle is the same as before the restart. Its call waits for the server.
		answer := f.answer(ctx, name, "name")
		found, _ := f.names.Lookup(name)
		fmt.Fprintf(f.out, "%s answers on link %d\n", answer, found.Status().Epoch)
	}
	return nil
}

// drain closes everything within one deadline, while two calls are running.
func (f *fleet) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answers, closed, idle := make(chan string, 2), make(chan error, 1), len(f.sites)-2
	for _, name := range []string{"east-01", "west-01"} {
		go func() { answers <- f.answer(ctx, name, "hold") }()
	}
	for range cap(answers) {
		select {
		case <-f.holding:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	go func() { closed <- f.tree.Close(ctx) }()
	err := f.awaitChildren(ctx, idle, supervisor.Stopped, 1)
	fmt.Fprintf(f.out, "%d sessions have ended, and 2 finish their calls\n", idle)
	close(f.release)
	for range cap(answers) {
		fmt.Fprintln(f.out, "a running call is answered:", <-answers)
	}
	err = errors.Join(err, <-closed)
	fmt.Fprintf(f.out, "the tree is %s, and %d sessions have names\n", f.tree.Report().State, f.names.Len())
	return err
}
