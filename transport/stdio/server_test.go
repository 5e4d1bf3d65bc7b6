package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// Prints of the program to standard output go to standard error, and do not mix with
// frames.
//
// Guarantees: G-0014.14
func TestServerProtectsItsOutputFromStrayPrints(t *testing.T) {
	var stderr bytes.Buffer
	command := roleCommand(t, "server")
	command.Stderr = &stderr
	p := open(t, command)
	p.send("1")
	p.want("1")
	p.close(hangGuard)
	p.want(`"ended"`)
	p.wantNothingMore()
	if stderr.String() != "stray\n" {
		t.Fatalf("got the standard error %q, want %q", &stderr, "stray\n")
	}
}

// Close of a Server ends the read of an input that stays open. A print to standard
// output after Close goes to standard error.
//
// Guarantees: G-0014.7, G-0014.14
func TestServerCloseInterruptsTheReadOfItsInput(t *testing.T) {
	p := open(t, roleCommand(t, "closing server"))
	p.want("restored")
	if exit := lossAs[*transport.ExitError](p); exit.Status != 0 {
		t.Fatalf("got the reason %v, want 0", exit)
	}
}

// A broken output loses the link. It does not end the process with SIGPIPE.
//
// Guarantees: G-0014.15
func TestServerOutlivesABrokenOutput(t *testing.T) {
	command := roleCommand(t, "writing server")
	cmd := exec.Command(command.Path)
	cmd.Env = append(os.Environ(), command.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, theirOutput := mustPipe(t)
	theirStart, start := mustPipe(t)
	cmd.Stdout = theirOutput
	cmd.ExtraFiles = []*os.File{theirStart}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{theirOutput, theirStart, output})
	start.WriteString("go\n")
	err = cmd.Wait()
	closeAll([]*os.File{start})
	stdin.Close()
	if err != nil || !strings.Contains(stderr.String(), "broken pipe") {
		t.Fatalf("the server ended with %v and the standard error %q, want %q in it", err, &stderr, "broken pipe")
	}
}

// After the end of its input, a link can still send.
//
// Guarantees: G-0014.15
func TestEndOfInputLeavesTheLinkWritable(t *testing.T) {
	in, theirOut := mustPipe(t)
	theirIn, out := mustPipe(t)
	p := open(t, &Server{In: in, Out: out})
	theirOut.WriteString("1\n")
	theirOut.Close()
	p.want("1")
	receive(t, p.ended, "Ended")
	p.send("2")
	p.close(hangGuard)
	if written, err := io.ReadAll(theirIn); err != nil || string(written) != "2\n" {
		t.Fatalf("the peer got %q, %v, want %q", written, err, "2\n")
	}
	theirIn.Close()
}

// A failed write loses the link. The frame counts as unsent if none of its bytes was
// written.
//
// Guarantees: G-0014.15
func TestFailedWriteLosesTheLink(t *testing.T) {
	in, theirOut := mustPipe(t)
	theirIn, out := mustPipe(t)
	theirIn.Close()
	p := open(t, &Server{In: in, Out: out})
	if err := p.Send(transport.Outbound{Tag: 1, Frame: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	loss := p.waitLoss()
	if !strings.Contains(loss.Reason.Error(), "broken pipe") || len(loss.Unsent) != 1 {
		t.Fatalf("got the reason %v and the unsent frames %v, want %q in it and len(loss.Unsent) == 1", loss.Reason, loss.Unsent, "broken pipe")
	}
	theirOut.Close()
}

// A Server skips a line above MaxFrame and reports it.
//
// Guarantees: G-0008.1, G-0008.4
func TestServerSkipsAnOversizedLine(t *testing.T) {
	in, theirOut := net.Pipe()
	p := open(t, &Server{In: in, Out: in, MaxFrame: 1000})
	go func() {
		for range 1000 {
			theirOut.Write(bytes.Repeat([]byte("x"), 1000))
		}
		theirOut.Write([]byte("\n\"next\"\n"))
	}()
	refusal, _ := receive(t, p.refused, "refusal")
	var oversized *transport.OversizedError
	if !errors.As(refusal, &oversized) || oversized.Limit != 1000 || oversized.Size <= 1000 {
		t.Fatalf("got the refusal %v, want a *transport.OversizedError, oversized.Limit == 1000 and oversized.Size > 1000", refusal)
	}
	p.want(`"next"`)
	p.close(hangGuard)
	theirOut.Close()
}

// Without MaxFrame, a frame of 16 MiB passes in both directions, and a longer one does
// not.
//
// Guarantees: G-0008.2, G-0008.4
func TestDefaultLimitOfAFrame(t *testing.T) {
	const limit = 16 << 20
	in, theirOut := net.Pipe()
	p := open(t, &Server{In: in, Out: in})
	go func() {
		theirOut.Write(append(bytes.Repeat([]byte("1"), limit+1), '\n'))
		theirOut.Write(append(bytes.Repeat([]byte("1"), limit), '\n'))
	}()
	go io.Copy(io.Discard, theirOut)
	refusal, _ := receive(t, p.refused, "refusal")
	var oversized *transport.OversizedError
	if !errors.As(refusal, &oversized) || oversized.Limit != limit {
		t.Errorf("got the refusal %v, want a *transport.OversizedError and oversized.Limit == %v", refusal, limit)
	}
	if frame, _ := receive(t, p.received, "frame"); len(frame) != limit {
		t.Errorf("got a frame of %d bytes, want %d", len(frame), limit)
	}
	if err := p.Link.Send(transport.Outbound{Tag: 1, Frame: make([]byte, limit+1)}); !errors.As(err, &oversized) || oversized.Limit != limit {
		t.Errorf("a longer frame: got %v, want a *transport.OversizedError and oversized.Limit == %v", err, limit)
	}
	if err := p.Link.Send(transport.Outbound{Tag: 2, Frame: make([]byte, limit)}); err != nil {
		t.Errorf("a frame of the limit: got %v, want no error", err)
	}
	p.close(0)
	theirOut.Close()
}

// A refused frame uses one credit, as a delivered one does.
//
// Guarantees: G-0008.4
func TestRefusedFrameUsesOneCredit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		in, theirOut := net.Pipe()
		p := openWithoutCredit(t, &Server{In: in, Out: in, MaxFrame: 4})
		go theirOut.Write([]byte("12345\n1\n"))
		p.Grant(transport.Main, 1)
		synctest.Wait()
		if len(p.refused) != 1 || len(p.received) != 0 {
			t.Fatalf("got %d refusals and %d frames for one credit, want 1 and 0", len(p.refused), len(p.received))
		}
		p.Grant(transport.Main, 1)
		p.want("1")
		p.close(hangGuard)
		theirOut.Close()
	})
}

// Without credit, the link stops reading, so the peer's writes block.
//
// Guarantees: G-0014.2
func TestNothingIsReadWithoutCredit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		in, theirOut := net.Pipe()
		p := openWithoutCredit(t, &Server{In: in, Out: in})
		written := make(chan error, 1)
		go func() {
			_, err := theirOut.Write([]byte("1\n"))
			written <- err
		}()
		synctest.Wait()
		if len(written) > 0 {
			t.Fatal("the peer's bytes were read without credit")
		}
		p.Grant(transport.Main, 1)
		p.want("1")
		p.close(hangGuard)
		theirOut.Close()
	})
}

// If the peer never reads, Close flushes for 70 % of its grace and returns within the
// grace.
//
// Guarantees: G-0014.7
func TestServerCloseIsBoundedByItsGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		in, peer := net.Pipe()
		p := open(t, &Server{In: in, Out: in})
		last := p.fill(4 << 10)
		start := time.Now()
		p.close(10 * time.Second)
		if took := time.Since(start); took != 7*time.Second {
			t.Fatalf("Close took %v, want 7s", took)
		}
		if unsent := p.waitLoss().Unsent; len(unsent) != int(last) {
			t.Fatalf("%d of %d frames are unsent, want all", len(unsent), last)
		}
		peer.Close()
	})
}

// Close does not wait for a read that cannot be interrupted. Its error names the read.
//
// Guarantees: G-0014.11
func TestServerCloseNamesAStuckRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		p := open(t, &Server{In: stuckStream(release), Out: stuckStream(release)})
		synctest.Wait() // until the read has begun
		if err := p.Close(0); err == nil || !strings.Contains(err.Error(), "read from the input") {
			t.Fatalf("Close with a stuck read: got %v, want an error and %q in it", err, "read from the input")
		}
		close(release)
	})
}

// stuckStream blocks all calls until it is released.
type stuckStream chan struct{}

func (s stuckStream) Read([]byte) (int, error)    { <-s; return 0, io.EOF }
func (s stuckStream) Write(p []byte) (int, error) { <-s; return len(p), nil }
func (s stuckStream) Close() error                { return nil }

// A Server has one link at a time: a second Open fails.
//
// Guarantees: G-0014.14
func TestServerHasOneLinkAtATime(t *testing.T) {
	in, peer := net.Pipe()
	defer peer.Close()
	server := &Server{In: in, Out: in}
	p := open(t, server)
	if _, err := server.Open(context.Background()); !errors.Is(err, errAlreadyOpen) {
		t.Fatalf("a second Open returned %v, want %v", err, errAlreadyOpen)
	}
	p.close(0)
	open(t, server).close(0)
}
