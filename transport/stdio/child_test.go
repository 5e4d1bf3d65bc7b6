package stdio

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// After the child has exited, frames in its pipe are still delivered, here one that
// comes 99 ms later from a descendant that holds the pipe open. The wait for them is
// limited.
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
			bubble(t, func(t *testing.T) {
				l, output := exitedChild(t)
				if test.closing {
					l.closing.Fire()
				}
				events := newFrames()
				l.Bind(events)
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
				if took := time.Since(start); took != test.took || len(events.received) != test.frames || len(events.lost) != 1 {
					t.Fatalf("got the loss after %v with %d frames", took, len(events.received))
				}
				output.Close()
				if !late.Stop() {
					<-wrote
				}
			})
		})
	}
}

// exitedChild returns a link to a child that has exited, and the end of its output that
// another process still holds.
func exitedChild(t *testing.T) (l *child, output net.Conn) {
	t.Helper()
	in, output := net.Pipe()
	out, _ := net.Pipe()
	errors, errorsEnd := mustPipe(t)
	errorsEnd.Close()
	l = &child{
		wire:   newWire(in, out, Lines, 0),
		stderr: newStderr(errors, nil),
		exit:   &transport.ExitError{},
		exited: make(chan struct{}),
		gone:   make(chan struct{}),
	}
	close(l.exited)
	<-l.stderr.done
	return l, output
}

// The loss comes when the writer of standard error has taken all that a dead child has said, or has had a second for it.
// Then Close names the writer.
//
// Guarantees: G-0014.13
func TestALossFollowsStandardError(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		took time.Duration
		left string
	}{
		0:                                   {drainTime, ""},
		500 * time.Millisecond:              {500 * time.Millisecond, ""},
		drainTime + copyTimeout + time.Hour: {drainTime + copyTimeout, `stdio: the Stderr writer of "it" has not returned`},
	} {
		bubble(t, func(t *testing.T) {
			l, output := exitedChild(t)
			l.command, l.process = "it", &process{child: &os.Process{Pid: 7}, reaped: true}
			said, saidEnd := mustPipe(t)
			saidEnd.WriteString("a cause")
			saidEnd.Close()
			began, release := time.Now(), make(chan struct{})
			l.stderr = newStderr(said, writerFunc(func(p []byte) (int, error) {
				select {
				case <-time.NewTimer(takes).C:
				case <-release:
				}
				return len(p), nil
			}))
			<-l.stderr.done
			events := newFrames()
			l.Bind(events)
			l.wire.start()
			go l.supervise()
			loss, _ := receive(t, events.lost, "loss")
			if exit := (*transport.ExitError)(nil); !errors.As(loss.Reason, &exit) || exit.Stderr != "a cause" || time.Since(began) != want.took {
				t.Errorf("for a writer that takes %v, got the loss %v after %v, want it after %v", takes, loss.Reason, time.Since(began), want.took)
			}
			if err := l.Close(0); (err == nil) != (want.left == "") || err != nil && err.Error() != want.left {
				t.Errorf("for a writer that takes %v, Close returned %v, want %q", takes, err, want.left)
			}
			close(release)
			<-l.stderr.copied
			output.Close()
		})
	}
}

// From the end of the child's output on, Send refuses. The child may still read its input, but it cannot
// answer, so it gets no request whose caller could not tell whether it was executed. Its input stays open
// until it is ended: a child that exits by itself meanwhile is lost for that reason.
//
// Guarantees: G-0014.23
func TestNothingIsSentAfterTheEndOfTheOutput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		in, output := io.Pipe()
		input, out := io.Pipe()
		l := &child{wire: newWire(in, out, Lines, 0), exited: make(chan struct{})}
		l.wire.start()
		l.Grant(transport.Main, 1)
		read, ended := make(chan string, 1), make(chan error, 1)
		go func() {
			all, _ := io.ReadAll(input)
			read <- string(all)
		}()
		go func() { ended <- l.firstEnd() }()
		if err := l.Send(transport.Outbound{Frame: []byte("before")}); err != nil {
			t.Fatalf("got %v from Send before the end of the output, want no error", err)
		}
		synctest.Wait()
		output.Close()
		synctest.Wait()
		if err := l.Send(transport.Outbound{Frame: []byte("after")}); err != transport.ErrClosed {
			t.Errorf("got %v from Send after the end of the output, want %v", err, transport.ErrClosed)
		}
		select {
		case all := <-read:
			t.Errorf("the input of the child has ended after %q, want it open until the child is ended", all)
		default:
		}
		if reason := <-ended; reason != transport.ErrPeerClosed {
			t.Errorf("got the reason %v, want %v", reason, transport.ErrPeerClosed)
		}
		l.writer.finish()
		if all := <-read; all != "before\n" {
			t.Errorf("the child has read %q, want only what was sent before the end of its output", all)
		}
		<-l.writeDone
		l.closeBoth()
	})
}

// A child ends the link by its exit, by the end of its output or input, or by what it sends; Close ends it, too. An exit
// that follows within 100 ms explains the rest. A child that cannot be killed is named by Close.
//
// Guarantees: G-0014.7, G-0014.9, G-0014.11
func TestHowAChildEndsTheLink(t *testing.T) {
	const never = time.Hour
	forced := brokenGrace/10*7 + forcedWait // until the link gives up a child that its own end does not end
	reads := func(_ *child, _, output net.Conn) { output.Close() }
	writes := func(l *child, input, _ net.Conn) { input.Close() }
	says := func(text string) func(*child, net.Conn, net.Conn) {
		return func(_ *child, _, output net.Conn) { go output.Write([]byte(text)) }
	}
	for name, test := range map[string]struct {
		framing Framing
		then    func(l *child, input, output net.Conn) // input and output are the child's
		exit    time.Duration                          // when the child exits
		after   time.Duration                          // when the loss is reported
		reason  string                                 // "": the exit
		is      error
		unsent  int
		left    string
	}{
		"it exits":                            {Lines, func(*child, net.Conn, net.Conn) {}, time.Second, time.Second + drainTime, "", nil, 2, ""},
		"its output ends":                     {Lines, reads, never, exitWait + forced, "transport: peer closed the link", transport.ErrPeerClosed, 2, `stdio: process 7 of "it" has not ended`},
		"its output ends, and it exits":       {Lines, reads, exitWait - 1, exitWait - 1, "", nil, 2, ""},
		"its output ends, and it exits later": {Lines, reads, exitWait + time.Second, exitWait + time.Second, "transport: peer closed the link", transport.ErrPeerClosed, 2, ""},
		"its input ends":                      {Lines, writes, never, exitWait + forced + drainTime, `stdio: write to "it": io: read/write on closed pipe`, io.ErrClosedPipe, 2, `stdio: process 7 of "it" has not ended`},
		"its input ends, and it exits":        {Lines, writes, exitWait - 1, exitWait - 1 + drainTime, "", nil, 2, ""},
		"a wrong header":                      {ContentLength, says("x\n"), never, exitWait + forced, `stdio: frame header "x": expected NAME: VALUE`, nil, 2, `stdio: process 7 of "it" has not ended`},
		"an oversized frame":                  {Lines, says(strings.Repeat("x", 200)), never, forced, (&transport.OversizedError{Limit: 100, Size: 200}).Error(), nil, 2, `stdio: process 7 of "it" has not ended`},
		"an oversized frame, and exit":        {Lines, says(strings.Repeat("x", 200)), time.Millisecond, time.Millisecond, (&transport.OversizedError{Limit: 100, Size: 200}).Error(), nil, 2, ""},
		"Close":                               {Lines, func(l *child, _, _ net.Conn) { go l.Close(10 * time.Second) }, time.Second, time.Second + drainTime, "transport: link closed", transport.ErrClosed, 2, ""},
		"Close, and it never ends":            {Lines, func(l *child, _, _ net.Conn) { go l.Close(10 * time.Second) }, never, 7*time.Second + forcedWait + drainTime, "transport: link closed", transport.ErrClosed, 2, `stdio: process 7 of "it" has not ended`},
		"Close without grace":                 {Lines, func(l *child, _, _ net.Conn) { go l.Close(0) }, never, forcedWait + drainTime, "transport: link closed", transport.ErrClosed, 2, `stdio: process 7 of "it" has not ended`},
		"it exits, and then Close":            {Lines, func(l *child, _, _ net.Conn) { time.AfterFunc(time.Second+time.Millisecond, func() { l.Close(0) }) }, time.Second, time.Second + drainTime, "transport: link closed", transport.ErrClosed, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				in, output := net.Pipe()
				out, input := net.Pipe()
				said, saidEnd := mustPipe(t)
				saidEnd.Close()
				l := &child{
					wire: newWire(in, out, test.framing, 100), command: "it", process: &process{child: &os.Process{Pid: 7}, reaped: true},
					stderr: newStderr(said, nil), exited: make(chan struct{}), gone: make(chan struct{}),
				}
				<-l.stderr.done
				events := newFrames()
				l.Bind(events)
				l.Grant(transport.Main, 10)
				l.wire.start()
				go l.supervise()
				for n := range transport.Tag(2) {
					if err := l.Send(transport.Outbound{Tag: n + 1, Frame: make([]byte, 100)}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // the first is being written
				}
				began := time.Now()
				exit := time.AfterFunc(test.exit, func() {
					l.exit = &transport.ExitError{Command: "it", Status: 3}
					close(l.exited)
				})
				test.then(l, input, output)
				loss, _ := receive(t, events.lost, "loss")
				if after := time.Since(began); after != test.after {
					t.Errorf("the loss came after %v, want %v", after, test.after)
				}
				if test.reason == "" {
					test.reason = (&transport.ExitError{Command: "it", Status: 3}).Error()
				}
				if loss.Reason.Error() != test.reason || test.is != nil && !errors.Is(loss.Reason, test.is) || len(loss.Unsent) != test.unsent {
					t.Errorf("got the reason %v and %d unsent, want %s and %d", loss.Reason, len(loss.Unsent), test.reason, test.unsent)
				}
				if err := l.Close(0); (err == nil) != (test.left == "") || err != nil && err.Error() != test.left {
					t.Errorf("Close returned %v, want %q", err, test.left)
				}
				exit.Stop()
				input.Close()
				output.Close()
			})
		})
	}
}
