// The example fleet has sessions with twenty servers in two regions. README.md explains
// it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/supervisor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run shows a fleet from its start to its end, step by step.
func run(ctx context.Context, out io.Writer) (err error) {
	f := newFleet()
	defer func() { err = errors.Join(err, f.leave()) }()
	for _, step := range []func(context.Context, io.Writer) error{f.start, f.find, f.lose, f.contain} {
		if err := step(ctx, out); err != nil {
			return errors.Join(err, f.tree.Stop(context.WithoutCancel(ctx)))
		}
	}
	return f.drain(ctx, out)
}

// start connects all sessions. The gate lets four of them connect at the same time.
func (f *fleet) start(ctx context.Context, out io.Writer) error {
	if err := f.connect(ctx); err != nil {
		return err
	}
	if err := f.awaitRunning(ctx, 0); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d children run in %d regions, and %d sessions have names\n", children, len(f.faults), f.names.Len())
	return nil
}

// find looks up a session by its name, as a part of the program would that has not
// created it.
func (f *fleet) find(ctx context.Context, out io.Writer) error {
	answer, err := f.call(ctx, "west-07", "name", client.CallOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "west-07 answers:", answer)
	return nil
}

// lose stops one server, prints the tree, and starts the server again.
func (f *fleet) lose(ctx context.Context, out io.Writer) error {
	down := f.sites["west-03"]
	if err := down.stop(ctx); err != nil {
		return err
	}
	lost, _ := f.names.Lookup("west-03")
	err := await(ctx, func() (bool, <-chan struct{}) {
		status := lost.Status() // a change of a connection is not one of the tree
		return status.State == conn.Backoff, status.Changed()
	})
	if err != nil {
		return err
	}
	_, err = f.call(ctx, "west-03", "name", client.CallOptions{})
	fmt.Fprintln(out, "west-03 is down; its call was not executed:", conn.NotExecuted(err))
	fmt.Fprintln(out, f.tree.Report())

	down.start()
	lost.Wake() // the server is back, so there is no need to wait for the backoff
	if err := lost.AwaitReady(ctx); err != nil {
		return err
	}
	answer, err := f.call(ctx, "west-03", "name", client.CallOptions{})
	fmt.Fprintln(out, "west-03 answers:", answer)
	return err
}

// contain makes a worker in the region east fail too often. The region is restarted, and
// the region west is not affected.
func (f *fleet) contain(ctx context.Context, out io.Writer) error {
	for range restarts + 1 {
		f.faults["east"] <- struct{}{}
	}
	if err := f.awaitRunning(ctx, 1); err != nil {
		return err
	}
	fmt.Fprintln(out, "the auditor of east has failed too often, so east was restarted")
	for _, name := range []string{"east-07", "west-07"} {
		// The handle is the same as before the restart. Its call waits for the server.
		answer, err := f.call(ctx, name, "name", client.CallOptions{WaitForReady: true})
		if err != nil {
			return err
		}
		found, _ := f.names.Lookup(name)
		fmt.Fprintf(out, "%s answers on link %d\n", answer, found.Status().Epoch)
	}
	return nil
}

// drain closes everything within one deadline, while two calls are running.
func (f *fleet) drain(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answers, err := f.hold(ctx, "east-01", "west-01")
	if err != nil {
		return errors.Join(err, f.tree.Close(ctx))
	}
	closed := make(chan error, 1)
	go func() { closed <- f.tree.Close(ctx) }()

	idle := len(f.sites) - 2
	err = f.awaitTree(ctx, func(r supervisor.Report) bool {
		return count(r, supervisor.Stopped) == idle && count(r, supervisor.Draining) == 2
	})
	if err != nil {
		return errors.Join(err, <-closed)
	}
	fmt.Fprintf(out, "%d sessions have ended, and 2 finish their calls\n", idle)
	close(f.release)
	for range 2 {
		fmt.Fprintln(out, "a running call is answered:", <-answers)
	}
	err = <-closed
	fmt.Fprintf(out, "the tree is %s, and %d sessions have names\n", f.tree.Report().State, f.names.Len())
	return err
}
