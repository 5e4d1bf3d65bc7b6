package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// Frames pass to a child and back. Close ends the link with ErrClosed.
func TestCommandEchoesFrames(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	for i := range 100 {
		p.send(strconv.Itoa(i))
	}
	for i := range 100 {
		p.want(strconv.Itoa(i))
	}
	p.close(hangGuard)
	if loss := p.waitLoss(); loss.Reason != transport.ErrClosed {
		t.Fatalf("got the reason %v for a closed link, want %v", loss.Reason, transport.ErrClosed)
	}
}

// A child gets the arguments, the environment and the directory of the Command.
func TestChildIsStartedAsTheCommandSays(t *testing.T) {
	t.Setenv("BOWLINE_STDIO_TEST_INHERITED", "inherited")
	command := roleCommand(t, "situation", "BOWLINE_STDIO_TEST_ADDED=added")
	command.Args = []string{"-x", "two words"}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command.Dir = dir
	p := open(t, command)
	p.want("[-x two words] " + dir + " inherited added")
	p.close(hangGuard)
}

// Close writes what is queued before it ends the child. The frames are more than a pipe
// holds, so most of them are queued.
//
// Guarantees: G-0014.7
func TestCloseFlushesWhatIsQueued(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	const frames = 200
	frame := strings.Repeat("x", 4<<10)
	for range frames {
		p.send(frame)
	}
	p.close(hangGuard)
	for range frames {
		p.want(frame)
	}
	p.wantNothingMore()
}

// A failed start is a StartError that unwraps to its cause.
//
// Guarantees: G-0014.8
func TestStartErrorUnwrapsToItsCause(t *testing.T) {
	notExecutable := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(notExecutable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, cause := range map[string]error{
		"bowline-no-such-command":          exec.ErrNotFound,
		filepath.Join(t.TempDir(), "none"): fs.ErrNotExist,
		notExecutable:                      fs.ErrPermission,
		"":                                 exec.ErrNotFound,
	} {
		_, err := (&Command{Path: path}).Open(context.Background())
		var start *transport.StartError
		if !errors.As(err, &start) || start.Command != path || !errors.Is(err, cause) {
			t.Errorf("start of %s: got %v, want a StartError for %v", path, err, cause)
		}
	}
}

// The context of Open bounds the start only. Its end does not end the link.
//
// Guarantees: G-0014.8
func TestContextBoundsTheStartOnly(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	link, err := roleCommand(t, "echo").Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	p := &peer{t: t, Link: link, frames: newFrames()}
	link.Bind(p.frames)
	link.Grant(transport.Main, 1)
	p.send("1")
	p.want("1")
	p.close(hangGuard)
	if _, err := roleCommand(t, "echo").Open(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Open with a cancelled context: got %v, want %v", err, context.Canceled)
	}
}

// The reason of a loss by an exit contains the status and the last lines of standard
// error.
//
// Guarantees: G-0014.9
func TestExitIsReportedWithStatusAndStderr(t *testing.T) {
	exit := lossAs[*transport.ExitError](open(t, roleCommand(t, "exit")))
	if exit.Status != 3 || exit.Signal != "" || exit.Stderr != "cannot read the configuration\n" {
		t.Fatalf("got the reason %+v, want exit.Status == 3, exit.Signal == %q and exit.Stderr == %q", exit, "", "cannot read the configuration\n")
	}
}

// An exit is reported even if frames of the child wait for credit.
//
// Guarantees: G-0014.9
func TestExitIsReportedWithoutCredit(t *testing.T) {
	p := openWithoutCredit(t, roleCommand(t, "situation"))
	if exit := lossAs[*transport.ExitError](p); exit.Status != 0 {
		t.Fatalf("got the reason %+v, want 0", exit)
	}
	p.wantNothingMore()
}

// If the child exits before Bind, Bind reports the loss.
//
// Guarantees: G-0014.1
func TestExitBeforeBindIsReportedAtBind(t *testing.T) {
	link, err := roleCommand(t, "exit").Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	receive(t, link.(*child).gone, "end of the child")
	p := &peer{t: t, Link: link, frames: newFrames()}
	link.Bind(p.frames)
	lossAs[*transport.ExitError](p)
	p.close(0)
}

// Frames that the child wrote before its exit are delivered before the loss.
//
// Guarantees: G-0014.9
func TestFramesBeforeTheExitAreDelivered(t *testing.T) {
	p := open(t, roleCommand(t, "burst"))
	for i := range burstFrames {
		p.want(burstFrame(i))
	}
	lossAs[*transport.ExitError](p)
	p.wantNothingMore()
}

// If the child is killed, the frames of which no byte was written are reported as
// unsent.
//
// Guarantees: G-0014.6
func TestFramesQueuedAtTheLossAreUnsent(t *testing.T) {
	p := open(t, roleCommand(t, "never reads"))
	p.want(`"ready"`)
	last := p.fill(4 << 10)
	if err := p.Link.(*child).process.child.Kill(); err != nil {
		t.Fatal(err)
	}
	loss := p.waitLoss()
	n := len(loss.Unsent)
	if n == 0 || n > 256 || loss.Unsent[n-1] != last || int(last-loss.Unsent[0]) != n-1 {
		t.Fatalf("got the unsent frames %[2]v of %[1]d accepted frames", last, loss.Unsent)
	}
}

// A grandchild that ignores SIGTERM and holds all streams of its parent neither delays
// the loss nor outlives the link. Its own connection to the test shows its end.
//
// Guarantees: G-0014.10
func TestGrandchildNeitherHoldsTheLinkNorOutlivesIt(t *testing.T) {
	socket := listen(t)
	p := open(t, roleCommand(t, "parent", socket.variable()))
	grandchild := socket.accept(t)
	p.send(`"exit"`)
	if exit := lossAs[*transport.ExitError](p); exit.Status != 7 {
		t.Fatalf("got the reason %+v, want 7", exit)
	}
	wantEnd(t, grandchild)
}

// Close ends the child and all its descendants.
//
// Guarantees: G-0014.10
func TestCloseEndsTheWholeTree(t *testing.T) {
	socket := listen(t)
	p := open(t, roleCommand(t, "parent", socket.variable()))
	grandchild := socket.accept(t)
	p.close(0)
	wantEnd(t, grandchild)
}

func wantEnd(t *testing.T, of io.Reader) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := of.Read(make([]byte, 1))
		ended <- err
	}()
	if err, _ := receive(t, ended, "end of the grandchild"); err == nil {
		t.Fatal("the grandchild still runs, want it to have ended")
	}
}

// A Close with a shorter grace shortens an earlier Close.
//
// Guarantees: G-0014.7, G-0014.11
func TestShorterCloseShortensAnEarlierOne(t *testing.T) {
	p := open(t, roleCommand(t, "stubborn"))
	p.want(`"ready"`)
	first := make(chan error, 1)
	go func() { first <- p.Close(1000 * hangGuard) }()
	p.close(0)
	if err, _ := receive(t, first, "end of the first Close"); err != nil {
		t.Fatal(err)
	}
}

// Close without a grace kills the child immediately.
//
// Guarantees: G-0014.7
func TestCloseWithoutGraceKillsAtOnce(t *testing.T) {
	p := open(t, roleCommand(t, "never reads"))
	p.want(`"ready"`)
	p.fill(4 << 10)
	p.close(0)
}

// A child that never reads is closed within the steps of the grace.
//
// Guarantees: G-0014.7
func TestChildThatNeverReadsIsClosedInTime(t *testing.T) {
	p := open(t, roleCommand(t, "never reads"))
	p.want(`"ready"`)
	p.fill(4 << 10)
	p.close(brokenGrace)
	if loss := p.waitLoss(); loss.Reason != transport.ErrClosed || len(loss.Unsent) == 0 {
		t.Fatalf("got the reason %v and %d unsent", loss.Reason, len(loss.Unsent))
	}
}

// Send refuses a frame above MaxFrame.
//
// Guarantees: G-0008.2
func TestOversizedFrameIsNotSent(t *testing.T) {
	command := roleCommand(t, "echo")
	command.MaxFrame = 10
	p := open(t, command)
	var oversized *transport.OversizedError
	err := p.Send(transport.Outbound{Frame: []byte("12345678901")})
	if !errors.As(err, &oversized) || oversized.Limit != 10 || oversized.Size != 11 {
		t.Fatalf("Send of 11 bytes returned %v, want a *transport.OversizedError, oversized.Limit == 10 and oversized.Size == 11", err)
	}
	p.send("1234567890")
	p.want("1234567890")
	p.close(hangGuard)
}

// Standard error is read to its end, and copied to the writer. Virtual time stands still while the child runs, so
// that the writer is never a second late, though it may be on a busy machine.
//
// Guarantees: G-0014.13
func TestStderrIsDrainedAndCopied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var stderr bytes.Buffer
		wantFloodSurvived(t, &stderr).close(hangGuard)
		if stderr.Len() != floodSize {
			t.Fatalf("%d bytes of standard error were copied, want %d", stderr.Len(), floodSize)
		}
	})
}

// The child can write all of its standard error whatever the writer does: a writer that
// fails gets one chunk, and a writer that blocks is given up.
//
// Guarantees: G-0014.13
func TestStderrIsDrainedWhateverTheWriterDoes(t *testing.T) {
	t.Run("no writer", func(t *testing.T) { wantFloodSurvived(t, nil).close(hangGuard) })
	t.Run("failing writer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			calls := 0
			wantFloodSurvived(t, writerFunc(func([]byte) (int, error) { calls++; return 0, io.ErrClosedPipe })).close(hangGuard)
			if calls != 1 {
				t.Fatalf("the writer was called %d times, want 1", calls)
			}
		})
	})
	t.Run("blocking writer", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := wantFloodSurvived(t, writerFunc(func(b []byte) (int, error) { <-release; return len(b), nil }))
		if err := p.Close(hangGuard); err == nil || !strings.Contains(err.Error(), "Stderr writer") {
			t.Fatalf("Close with a blocked Stderr writer: got %v, want an error and %q in it", err, "Stderr writer")
		}
	})
}

func wantFloodSurvived(t *testing.T, stderr io.Writer) *peer {
	t.Helper()
	command := roleCommand(t, "flood stderr")
	command.Stderr = stderr
	p := open(t, command)
	p.want(`"done"`)
	return p
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A newline in a frame is sent as a space.
func TestNewlineInAFrameIsSentAsASpace(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	p.send("[1,\n2,\n3]\n")
	p.want("[1, 2, 3] ")
	p.send("\n\n4")
	p.want("  4")
	p.close(hangGuard)
}

// Send on a stream other than Main fails.
func TestOnlyTheMainStreamIsCarried(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	err := p.Send(transport.Outbound{Stream: 7, Frame: []byte("1")})
	if !errors.Is(err, transport.ErrNoRoute) {
		t.Fatalf("Send on stream 7 returned %v, want %v", err, transport.ErrNoRoute)
	}
	p.close(hangGuard)
}
