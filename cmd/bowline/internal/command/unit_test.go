package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

func TestSplit(t *testing.T) {
	for command, want := range map[string][]string{
		`a b`:                {"a", "b"},
		`a "b c" 'd "e"'`:    {"a", "b c", `d "e"`},
		`a "" b\ c`:          {"a", "", "b c"},
		"a $HOME `b` $(c)":   {"a", "$HOME", "`b`", "$(c)"},
		`'C:\Program Files'`: {`C:\Program Files`},
		`a # b`:              {"a", "#", "b"},
		`a 'b;c'`:            {"a", "b;c"},
	} {
		if got, err := split(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", command, got, err, want)
		}
	}
}

// TestReadInputEndsWithItsContext checks that an interrupt ends the command while it reads
// standard input.
func TestReadInputEndsWithItsContext(t *testing.T) {
	silent, closer := io.Pipe()
	defer closer.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	if _, err := readInput(ctx, silent); !errors.Is(err, interrupted) {
		t.Errorf("the error is %v", err)
	}
}

func TestReadInputIsBounded(t *testing.T) {
	if _, err := readInput(t.Context(), endless{}); err == nil {
		t.Error("input without end was accepted")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestPrintableLeavesNoControlCharacters(t *testing.T) {
	if got, want := printable("a\x1b\x07\u009b\r\n\tb"), "a\uFFFD\uFFFD\uFFFD\uFFFD\n\tb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressOnATerminalIsOneLine checks that the line is redrawn, and cleared at the end.
func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true}
	p.show(&protocol.ProgressParams{Progress: 1, Total: 2})
	p.show(&protocol.ProgressParams{Progress: 1.5, Message: "half\nway"})
	p.end()
	if want := "\r\x1b[Kprogress: 1 of 2\r\x1b[Kprogress: 1.5: half\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestPrintableLeavesNoTricks checks that characters for direction and line separation are
// replaced.
func TestPrintableLeavesNoTricks(t *testing.T) {
	if got, want := printable("a\u202eb\u2066c\u200fd\u2028e\u061cf é👩‍🚀"), "a\uFFFDb\uFFFDc\uFFFDd\uFFFDe\uFFFDf é👩‍🚀"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestServerLogMarksEveryLine checks that each line is marked, for writes of any size.
func TestServerLogMarksEveryLine(t *testing.T) {
	text := "one\nbowline: tw\x1bo é\n\nend"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		log := serverLog(&out)
		for chunk := range slices.Chunk([]byte(text), size) {
			if _, err := log.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if want := "| one\n| bowline: tw\uFFFDo é\n| \n| end"; out.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}

// TestCredentialsAreRedacted checks that credentials are hidden in errors.
func TestCredentialsAreRedacted(t *testing.T) {
	var tg target
	tg.secrets = credentialsOf(&streamable.Client{
		URL:    "https://ada:hunter2@h.test/mcp?key=s3cr%20t&n=1",
		Header: http.Header{"Authorization": {"Bearer tok-en"}, "X-Short": {"abc"}},
	})
	text := "got https://h.test/?key=s3cr%20t&n=1, key s3cr t, s3cr+t, hunter2, Bearer tok-en, tok-en, abc, 1"
	if got, want := tg.redact(text), "got https://h.test/?[redacted], key [redacted], [redacted], [redacted], [redacted], [redacted], abc, 1"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestPatienceStandsStillWhileTheUserIsAsked checks that the time for answers does not count
// for --timeout.
func TestPatienceStandsStillWhileTheUserIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUser(strings.NewReader(""), io.Discard)
		began := time.Now()
		ctx, cancel := u.limit.bound(t.Context(), time.Minute)
		defer cancel()
		<-time.NewTimer(20 * time.Second).C
		end, err := u.begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(time.Hour).C
		end()
		<-ctx.Done()
		if took := time.Since(began); took != time.Hour+time.Minute {
			t.Errorf("the run has ended after %v", took)
		}
		if cause := context.Cause(ctx).Error(); cause != "no answer within --timeout 1m0s" {
			t.Errorf("the cause is %s", cause)
		}
	})
}

// TestCallTimeoutWithoutALimit checks that --timeout 0 sets no limit, also after a question.
func TestCallTimeoutWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p callTimeout
		ctx, cancel := p.bound(t.Context(), 0)
		p.pause()
		p.resume()
		<-time.NewTimer(1000 * time.Hour).C
		if ctx.Err() != nil {
			t.Errorf("the context has ended: %v", context.Cause(ctx))
		}
		cancel()
	})
}

// TestALateLineAnswersNothing checks that a line typed after a cancelled question does not
// answer the next one.
func TestALateLineAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, keyboard := io.Pipe()
		u := newUser(in, io.Discard)
		ctx, drop := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			drop()
		}()
		if _, err := u.confirm(ctx, "first?"); !errors.Is(err, context.Canceled) {
			t.Fatalf("the error is %v", err)
		}
		io.WriteString(keyboard, "y\n")
		synctest.Wait()
		go func() {
			synctest.Wait()
			io.WriteString(keyboard, "n\n")
		}()
		if yes, err := u.confirm(t.Context(), "second?"); yes || err != nil {
			t.Errorf("the answer is %v, %v", yes, err)
		}
	})
}

// TestOneQuestionAtATime checks that the next question waits for the first, or for the end of
// its context.
func TestOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUser(strings.NewReader("y\n"), io.Discard)
		end, err := u.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, drop := context.WithCancel(t.Context())
		drop()
		if _, err := u.confirm(ctx, "second?"); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		end()
		if yes, err := u.confirm(t.Context(), "third?"); !yes || err != nil {
			t.Errorf("the answer is %v, %v", yes, err)
		}
	})
}

// TestNamesOfAPeerCannotBeHelp checks that no name of a peer is a message of the completion
// script, and that the other names stay.
func TestNamesOfAPeerCannotBeHelp(t *testing.T) {
	tools := func(yield func(*protocol.Tool, error) bool) {
		for _, name := range []string{"echo", "_activeHelp_ \x1b[2J", "\t_activeHelp_", "a\x1bdd"} {
			if !yield(&protocol.Tool{Name: name}, nil) {
				return
			}
		}
	}
	got, err := names(tools, func(tool *protocol.Tool) (string, string) { return tool.Name, "a\u202etool" })
	if want := []cobra.Completion{"echo\ta\uFFFDtool", "a\uFFFDdd\ta\uFFFDtool"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the completions are %q, %v, want %q", got, err, want)
	}
}
