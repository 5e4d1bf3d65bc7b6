package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

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
		t.Fatalf("a closed link is lost with %v", loss.Reason)
	}
}

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

// The frames are more than a pipe holds, so that Close finds most of them
// queued.
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
			t.Errorf("start of %s: %v, want a StartError for %v", path, err, cause)
		}
	}
}

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
		t.Fatalf("Open with a cancelled context: %v", err)
	}
}

// Guarantees: G-0014.9
func TestExitIsReportedWithStatusAndStderr(t *testing.T) {
	exit := lossAs[*transport.ExitError](open(t, roleCommand(t, "exit")))
	if exit.Status != 3 || exit.Signal != "" || exit.Stderr != "cannot read the configuration\n" {
		t.Fatalf("lost with %+v", exit)
	}
}

// The child leaves a frame in the pipe, which is not read without credit.
//
// Guarantees: G-0014.9
func TestExitIsReportedWithoutCredit(t *testing.T) {
	p := openWithoutCredit(t, roleCommand(t, "situation"))
	if exit := lossAs[*transport.ExitError](p); exit.Status != 0 {
		t.Fatalf("lost with %+v", exit)
	}
	p.wantNothingMore()
}

// Guarantees: G-0014.1
func TestExitBeforeBindIsToldAtBind(t *testing.T) {
	link, err := roleCommand(t, "exit").Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	wait(t, link.(*child).gone, "the end of the child")
	p := &peer{t: t, Link: link, frames: newFrames()}
	link.Bind(p.frames)
	lossAs[*transport.ExitError](p)
	p.close(0)
}

// Guarantees: G-0014.9
func TestFramesBeforeTheExitAreDelivered(t *testing.T) {
	p := open(t, roleCommand(t, "burst"))
	for i := range burstFrames {
		p.want(burstFrame(i))
	}
	lossAs[*transport.ExitError](p)
	p.wantNothingMore()
}

// The child is killed while frames are on their way to it.
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
		t.Fatalf("of %d accepted frames, unsent are %v", last, loss.Unsent)
	}
}

// The grandchild ignores SIGTERM and holds every stream of its parent's. Its
// end is seen as the end of its own connection to the test.
//
// Guarantees: G-0014.10
func TestGrandchildNeitherHoldsTheLinkNorOutlivesIt(t *testing.T) {
	socket := listen(t)
	p := open(t, roleCommand(t, "parent", socket.variable()))
	grandchild := socket.accept(t)
	p.send(`"exit"`)
	if exit := lossAs[*transport.ExitError](p); exit.Status != 7 {
		t.Fatalf("lost with %+v", exit)
	}
	wantEnd(t, grandchild)
}

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
	if err, _ := wait(t, ended, "the grandchild's end"); err == nil {
		t.Fatal("the grandchild lives")
	}
}

// Guarantees: G-0014.7, G-0014.11
func TestShorterCloseShortensAnEarlierOne(t *testing.T) {
	p := open(t, roleCommand(t, "stubborn"))
	p.want(`"ready"`)
	first := make(chan error, 1)
	go func() { first <- p.Close(1000 * hangGuard) }()
	p.close(0)
	if err, _ := wait(t, first, "the end of the first Close"); err != nil {
		t.Fatal(err)
	}
}

// Guarantees: G-0014.7
func TestCloseWithoutGraceKillsAtOnce(t *testing.T) {
	p := open(t, roleCommand(t, "never reads"))
	p.want(`"ready"`)
	p.fill(4 << 10)
	p.close(0)
}

// Guarantees: G-0014.7
func TestChildThatNeverReadsIsClosedWithinItsLadder(t *testing.T) {
	p := open(t, roleCommand(t, "never reads"))
	p.want(`"ready"`)
	p.fill(4 << 10)
	p.close(brokenGrace)
	if loss := p.waitLoss(); loss.Reason != transport.ErrClosed || len(loss.Unsent) == 0 {
		t.Fatalf("lost with %v, %d unsent", loss.Reason, len(loss.Unsent))
	}
}

// Guarantees: G-0008.2
func TestOversizedFrameIsNotSent(t *testing.T) {
	command := roleCommand(t, "echo")
	command.MaxFrame = 10
	p := open(t, command)
	var oversized *transport.OversizedError
	err := p.Send(transport.Outbound{Frame: []byte("12345678901")})
	if !errors.As(err, &oversized) || oversized.Limit != 10 || oversized.Size != 11 {
		t.Fatalf("Send of 11 bytes returned %v", err)
	}
	p.send("1234567890")
	p.want("1234567890")
	p.close(hangGuard)
}

// Guarantees: G-0014.13
func TestStderrIsDrainedAndCopied(t *testing.T) {
	var stderr bytes.Buffer
	command := roleCommand(t, "flood stderr")
	command.Stderr = &stderr
	p := open(t, command)
	p.want(`"done"`)
	p.close(hangGuard)
	if stderr.Len() != floodSize {
		t.Fatalf("%d bytes of standard error were copied, of %d", stderr.Len(), floodSize)
	}
}

// A failing writer gets one chunk, a blocking one is given up; the child gets
// through its flood in spite of both.
//
// Guarantees: G-0014.13
func TestStderrIsDrainedWhateverTheWriterDoes(t *testing.T) {
	t.Run("no writer", func(t *testing.T) { wantFloodSurvived(t, nil).close(hangGuard) })
	t.Run("failing writer", func(t *testing.T) {
		calls := 0
		wantFloodSurvived(t, writerFunc(func([]byte) (int, error) { calls++; return 0, io.ErrClosedPipe })).close(hangGuard)
		if calls != 1 {
			t.Fatalf("the writer was called %d times", calls)
		}
	})
	t.Run("blocking writer", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := wantFloodSurvived(t, writerFunc(func(b []byte) (int, error) { <-release; return len(b), nil }))
		if err := p.Close(hangGuard); err == nil || !strings.Contains(err.Error(), "Stderr writer") {
			t.Fatalf("Close with a blocked Stderr writer: %v", err)
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

func TestNewlineInAFrameIsSentAsASpace(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	p.send("[1,\n2,\n3]\n")
	p.want("[1, 2, 3] ")
	p.close(hangGuard)
}

func TestOnlyTheMainStreamIsCarried(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	err := p.Send(transport.Outbound{Stream: 7, Frame: []byte("1")})
	if !errors.Is(err, transport.ErrNoRoute) {
		t.Fatalf("Send on stream 7 returned %v", err)
	}
	p.close(hangGuard)
}

// The child is gone, and one of its frames comes out of the pipe 99 ms later: a
// descendant that escaped holds the other end. Nobody closes that end.
//
// Guarantees: G-0014.2, G-0014.9
func TestDeadChildsPipeIsDrained(t *testing.T) {
	for _, test := range []struct {
		name    string
		credit  int
		closing bool
		frames  int
		took    time.Duration
	}{
		{"against credit", 2, false, 1, drainTime},
		{"not without credit", 0, false, 0, drainTime},
		{"while closing, against credit", 2, true, 1, drainTime},
		{"while closing, without waiting for credit", 0, true, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, output := deadChild(t)
				if test.closing {
					l.closing.Raise()
				}
				told := newFrames()
				l.Bind(told)
				l.Grant(transport.Main, test.credit)
				start := time.Now()
				l.wire.start()
				go l.supervise()
				wrote := make(chan struct{})
				late := time.AfterFunc(drainTime-time.Millisecond, func() {
					defer close(wrote)
					output.Write([]byte("1\n"))
				})
				<-l.gone
				if took := time.Since(start); took != test.took || len(told.received) != test.frames || len(told.lost) != 1 {
					t.Fatalf("lost after %v with %d frames received", took, len(told.received))
				}
				output.Close()
				if !late.Stop() {
					<-wrote
				}
			})
		})
	}
}

// deadChild is a link to a child that has exited, with the end of its output
// that something else still holds.
func deadChild(t *testing.T) (l *child, output net.Conn) {
	t.Helper()
	in, output := net.Pipe()
	out, _ := net.Pipe()
	errors, errorsEnd := mustPipe(t)
	errorsEnd.Close()
	l = &child{
		wire:      newWire(in, out, Lines, 0),
		stderr:    newStderr(errors, nil),
		exit:      &transport.ExitError{},
		exited:    make(chan struct{}),
		abandoned: latch.New(),
		gone:      make(chan struct{}),
	}
	close(l.exited)
	<-l.stderr.done
	return l, output
}
