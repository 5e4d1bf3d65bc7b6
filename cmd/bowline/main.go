package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(runUntilSignal(os.Args[1:]))
}

// runUntilSignal runs the command in a context that the first interrupt ends.
// A second one ends the process as if nothing caught it.
func runUntilSignal(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx, args)
}
