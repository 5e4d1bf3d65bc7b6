package stdio

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/transport"
)

// answeringWorker is a Runner that answers each frame.
type answeringWorker struct {
	*frames
	link answerable
}

type answerable interface {
	transport.Flusher
	Send(transport.Outbound) error
}

func (answeringWorker) StreamBegun(transport.Stream) bool { return false }

func (a answeringWorker) Serve(bool, func()) { a.Work(1) }

func (a answeringWorker) Work(int) {
	if err := a.link.Send(transport.Outbound{Frame: []byte("answer")}); err != nil {
		panic(err)
	}
	a.link.Flush(1)
}

// acceptingStream is a stream that accepts every write.
type acceptingStream struct{ writes chan string }

func (c acceptingStream) Write(text []byte) (int, error) {
	c.writes <- string(text)
	return len(text), nil
}

type noStream struct{ io.Writer }

func (noStream) Close() error { return nil }

// Frames that arrive in one read are answered in few writes: of 4 answers, then of 8, and
// so on up to 64. If the last of the frames has no credit, those before it are answered
// first.
//
// Guarantees: G-0051.3, G-0051.5, G-0066.1
func TestFramesThatArriveTogetherAreAnsweredTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const came = 210
		in, peer := io.Pipe()
		w := newWire(in, noStream{io.Discard}, Lines, 0)
		out := acceptingStream{make(chan string, came)}
		w.writer.direct = out
		w.Bind(answeringWorker{newFrames(), w})
		w.Flush(0)
		w.Grant(transport.Main, 3)
		w.start()
		synctest.Wait() // otherwise a late writer would write the answers itself
		want := func(writes ...int) {
			t.Helper()
			synctest.Wait()
			var got []int
			for len(out.writes) > 0 {
				got = append(got, strings.Count(<-out.writes, "answer\n"))
			}
			if !slices.Equal(got, writes) {
				t.Fatalf("got writes of %d answers, want of %d", got, writes)
			}
		}
		io.WriteString(peer, strings.Repeat("question\n", came))
		want(3)
		w.Grant(transport.Main, came-3)
		want(4, 8, 16, 32, 64, 64, came-3-188)
		w.Grant(transport.Main, 1)
		io.WriteString(peer, "question\n")
		want(1)
		w.Grant(transport.Main, 20)
		io.WriteString(peer, strings.Repeat("question\n", 20))
		want(4, 8, 8)
		w.stopReading()
		peer.Close()
		w.writer.finish()
		<-w.readDone
		<-w.writeDone
	})
}

// The answers to earlier frames are written before the reader reads on or ends, even if
// the next line of the peer is empty, oversized or partial.
//
// Guarantees: G-0051.5
func TestAnswersDoNotWaitForTheNextFrame(t *testing.T) {
	const limit = 100
	long := strings.Repeat("x", limit+2)
	longer := strings.Repeat("x", 3*firstBuffer)
	for _, test := range []struct {
		name    string
		framing Framing
		came    string // what the peer writes at once
		answers int
		last    int // additional answers if the stream ends
	}{
		{"a line", Lines, "1\n", 1, 0},
		{"an empty line", Lines, "1\n\n", 1, 0},
		{"an empty line with a carriage return", Lines, "1\r\n\r\n", 1, 0},
		{"many empty lines", Lines, "\n1\n\n\r\n2\n\r\n\n", 2, 0},
		{"half a frame", Lines, "1\n2\nhalf", 2, 1},
		{"an empty line and half a frame", Lines, "1\n\nhalf", 1, 1},
		{"a carriage return", Lines, "1\n\n\r", 1, 0},
		{"banners", Lines, "ready\n\n1\n** bye **\n\n", 3, 0},
		{"an oversized line", Lines, "1\n" + long + "\n", 2, 0},
		{"an oversized line and an empty one", Lines, "1\n" + long + "\n\n", 2, 0},
		{"an oversized line without its end", Lines, "1\n" + long, 2, 0},
		{"a long oversized line", Lines, "1\n" + longer + "\n\n", 2, 0},
		{"a frame behind a long oversized line", Lines, longer + "\n1\n\n", 2, 0},
		{"a header's frame", ContentLength, "Content-Length: 1\r\n\r\n1", 1, 0},
		{"empty lines before a header", ContentLength, "Content-Length: 1\r\n\r\n1\r\n\r\n", 1, 0},
		{"half a header", ContentLength, "Content-Length: 1\r\n\r\n1Content-Length: 1\r\n", 1, 0},
		{"a header without its frame", ContentLength, "Content-Length: 1\r\n\r\n1Content-Length: 1\r\n\r\n", 1, 0},
		{"a header of no frame", ContentLength, "Content-Length: 1\r\n\r\n1Content-Length: 0\r\n\r\n", 1, 0},
		{"a header of an oversized frame", ContentLength, "Content-Length: 1\r\n\r\n1Content-Length: 1000\r\n\r\nhalf", 2, 0},
	} {
		for _, end := range []struct {
			name    string
			direct  bool // Send writes on its own goroutine
			credit  int
			closing bool // whether the peer also closes its end
		}{
			{"", true, 100, false},
			{", written by the writer", false, 100, false},
			{", without credit for a second", true, 1, false},
			{", at the end", true, 100, true},
		} {
			t.Run(test.name+end.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var written strings.Builder
					in, peer := io.Pipe()
					w := newWire(in, noStream{&written}, test.framing, limit)
					w.skips = true
					out := acceptingStream{make(chan string, 100)}
					if end.direct {
						w.writer.direct = out
					}
					w.Bind(answeringWorker{newFrames(), w})
					w.Flush(0)
					w.Grant(transport.Main, end.credit)
					w.start()
					synctest.Wait() // until the writer waits
					go func() {
						io.WriteString(peer, test.came)
						if end.closing {
							peer.Close()
						}
					}()
					synctest.Wait()
					for len(out.writes) > 0 {
						written.WriteString(<-out.writes)
					}
					answers := test.answers
					if end.closing {
						answers += test.last
					}
					answers = min(answers, end.credit)
					if got := strings.Count(written.String(), "answer"); got != answers {
						t.Errorf("got %d answers, want %d", got, answers)
					}
					w.stopReading()
					in.Close()
					w.writer.finish()
					<-w.readDone
					<-w.writeDone
				})
			})
		}
	}
}

// The answers are written when the stream has ended, too, if its end came with its last bytes.
//
// Guarantees: G-0051.5
func TestAnswersDoNotWaitAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWire(io.NopCloser(iotest.DataErrReader(strings.NewReader("1\n2\n"))), noStream{io.Discard}, Lines, 0)
		out := acceptingStream{make(chan string, 100)}
		w.writer.direct = out
		w.Bind(answeringWorker{newFrames(), w})
		w.Flush(0)
		w.start()
		synctest.Wait() // until the writer waits
		w.Grant(transport.Main, 100)
		<-w.readDone
		if synctest.Wait(); len(out.writes) != 1 || <-out.writes != "answer\nanswer\n" {
			t.Errorf("got %d more writes, want one of both answers", len(out.writes))
		}
		w.writer.finish()
		<-w.writeDone
	})
}

// A peer may send an empty line after each message and then wait for the answer, as a
// child process and as the parent process.
//
// Guarantees: G-0051.5
func TestPeerMaySendEmptyLines(t *testing.T) {
	t.Run("a server", func(t *testing.T) {
		link := mustOpen(t, roleCommand(t, "empty lines"))
		defer link.Close(0)
		answer(link)
		receive(t, link.(*child).readDone, "end of the child, which got its answers")
	})
	t.Run("a client", func(t *testing.T) {
		in, theirOut := mustPipe(t)
		theirIn, out := mustPipe(t)
		link := mustOpen(t, &Server{In: in, Out: out})
		defer closeAll([]*os.File{theirIn, theirOut})
		defer link.Close(0)
		answer(link)
		asked := make(chan error, 1)
		go func() { asked <- askWithEmptyLines(theirOut, theirIn) }()
		if err, _ := receive(t, asked, "last answer"); err != nil {
			t.Fatal(err)
		}
	})
}

func answer(link transport.Link) {
	flushing := link.(answerable)
	link.Bind(answeringWorker{newFrames(), flushing})
	flushing.Flush(0)
	link.Grant(transport.Main, 100)
}

// emptyLines sends requests, and exits when it has the answers.
func emptyLines() {
	if err := askWithEmptyLines(os.Stdout, os.Stdin); err != nil {
		panic(err)
	}
}

func askWithEmptyLines(to io.Writer, from io.Reader) error {
	answers := bufio.NewReader(from)
	for range 5 {
		if _, err := io.WriteString(to, "question\n\n"); err != nil {
			return err
		}
		if line, err := answers.ReadString('\n'); line != "answer\n" || err != nil {
			return fmt.Errorf("got the answer %q: %w", line, err)
		}
	}
	return nil
}
