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
		t.Fatalf("standard error was %q", &stderr)
	}
}

// The process ends by itself although its input stays open, and prints to its
// standard output again after Close.
//
// Guarantees: G-0014.7, G-0014.14
func TestServerCloseInterruptsTheReadOfItsInput(t *testing.T) {
	p := open(t, roleCommand(t, "closing server"))
	p.want("restored")
	if exit := lossAs[*transport.ExitError](p); exit.Status != 0 {
		t.Fatalf("lost with %v", exit)
	}
}

// Writing to descriptor 1 would end the process by SIGPIPE.
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
		t.Fatalf("the server ended with %v, and said %q", err, &stderr)
	}
}

// Guarantees: G-0014.15
func TestEndOfInputLeavesTheLinkWritable(t *testing.T) {
	in, theirOut := mustPipe(t)
	theirIn, out := mustPipe(t)
	p := open(t, &Server{In: in, Out: out})
	theirOut.WriteString("1\n")
	theirOut.Close()
	p.want("1")
	wait(t, p.ended, "Ended")
	p.send("2")
	p.close(hangGuard)
	if written, err := io.ReadAll(theirIn); err != nil || string(written) != "2\n" {
		t.Fatalf("the peer read %q, %v", written, err)
	}
	theirIn.Close()
}

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
		t.Fatalf("lost with %v, %v unsent", loss.Reason, loss.Unsent)
	}
	theirOut.Close()
}

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
	refusal, _ := wait(t, p.refused, "the refusal")
	var oversized *transport.OversizedError
	if !errors.As(refusal, &oversized) || oversized.Limit != 1000 || oversized.Size <= 1000 {
		t.Fatalf("refused with %v", refusal)
	}
	p.want(`"next"`)
	p.close(hangGuard)
	theirOut.Close()
}

// Without MaxFrame, a frame of 16 MiB passes in both directions, and a longer one
// does not.
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
	refusal, _ := wait(t, p.refused, "the refusal")
	var oversized *transport.OversizedError
	if !errors.As(refusal, &oversized) || oversized.Limit != limit {
		t.Errorf("refused with %v", refusal)
	}
	if frame, _ := wait(t, p.received, "the frame"); len(frame) != limit {
		t.Errorf("received %d bytes", len(frame))
	}
	if err := p.Link.Send(transport.Outbound{Tag: 1, Frame: make([]byte, limit+1)}); !errors.As(err, &oversized) || oversized.Limit != limit {
		t.Errorf("a longer frame: %v", err)
	}
	if err := p.Link.Send(transport.Outbound{Tag: 2, Frame: make([]byte, limit)}); err != nil {
		t.Errorf("a frame of the limit: %v", err)
	}
	p.close(0)
	theirOut.Close()
}

// Guarantees: G-0008.4
func TestRefusalCostsOneCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, theirOut := net.Pipe()
		p := openWithoutCredit(t, &Server{In: in, Out: in, MaxFrame: 4})
		go theirOut.Write([]byte("12345\n1\n"))
		p.Grant(transport.Main, 1)
		synctest.Wait()
		if len(p.refused) != 1 || len(p.received) != 0 {
			t.Fatalf("one credit brought %d refusals and %d frames", len(p.refused), len(p.received))
		}
		p.Grant(transport.Main, 1)
		p.want("1")
		p.close(hangGuard)
		theirOut.Close()
	})
}

// Guarantees: G-0014.2
func TestNothingIsReadWithoutCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// The peer never reads: the flush has 70 % of the grace.
//
// Guarantees: G-0014.7
func TestServerCloseIsBoundedByItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, peer := net.Pipe()
		p := open(t, &Server{In: in, Out: in})
		last := p.fill(4 << 10)
		start := time.Now()
		p.close(10 * time.Second)
		if took := time.Since(start); took != 7*time.Second {
			t.Fatalf("Close took %v", took)
		}
		if unsent := p.waitLoss().Unsent; len(unsent) != int(last) {
			t.Fatalf("%d of %d frames are unsent", len(unsent), last)
		}
		peer.Close()
	})
}

// A read that cannot be interrupted is named, not waited for.
//
// Guarantees: G-0014.11
func TestServerCloseNamesAStuckRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := open(t, &Server{In: stuck(release), Out: stuck(release)})
		synctest.Wait() // the read is under way
		if err := p.Close(0); err == nil || !strings.Contains(err.Error(), "read from the input") {
			t.Fatalf("Close with a stuck read: %v", err)
		}
		close(release)
	})
}

// stuck blocks until it is released, whatever is asked of it.
type stuck chan struct{}

func (s stuck) Read([]byte) (int, error)    { <-s; return 0, io.EOF }
func (s stuck) Write(p []byte) (int, error) { <-s; return len(p), nil }
func (s stuck) Close() error                { return nil }

// Guarantees: G-0014.14
func TestServerHasOneLinkAtATime(t *testing.T) {
	in, peer := net.Pipe()
	defer peer.Close()
	server := &Server{In: in, Out: in}
	p := open(t, server)
	if _, err := server.Open(context.Background()); !errors.Is(err, errAlreadyOpen) {
		t.Fatalf("a second Open returned %v", err)
	}
	p.close(0)
	open(t, server).close(0)
}
