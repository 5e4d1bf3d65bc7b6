package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// What a child process is told by its environment.
const (
	witnessVariable = "BOWLINE_FLEET_WITNESS" // the file that it writes to; set in children only
	markVariable    = "BOWLINE_FLEET_RUN"     // the run that it belongs to
)

// isChild reports whether this process is to be a server for another one.
func isChild() bool { return os.Getenv(witnessVariable) != "" }

// serveChild is a child's whole life: a server on standard input and output,
// until its input ends.
func serveChild(ctx context.Context) error {
	witness, err := os.OpenFile(os.Getenv(witnessVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer witness.Close()
	s := server.New(protocol.Implementation{Name: "fleet", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: record}, recorder{witness}.record)
	return s.Serve(ctx, &stdio.Server{})
}

// record is the tool that writes down its call.
const record = "record"

// A recording is the arguments of the tool.
type recording struct {
	Call   int64 `json:"call"`
	Before int   `json:"before"` // milliseconds that it takes before it writes
	After  int   `json:"after"`  // and after that
}

func (r recording) answer() string { return fmt.Sprintf("recorded %d", r.Call) }

type recorder struct{ witness *os.File }

// record writes one line, in one write that is appended whole or not at all.
func (r recorder) record(ctx context.Context, in recording) (string, error) {
	if err := pause(ctx, time.Duration(in.Before)*time.Millisecond); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(r.witness, "%d\n", in.Call); err != nil {
		return "", err
	}
	if err := pause(ctx, time.Duration(in.After)*time.Millisecond); err != nil {
		return "", err
	}
	return in.answer(), nil
}
