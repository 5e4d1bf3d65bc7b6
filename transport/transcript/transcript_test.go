package transcript_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A tapped link keeps the contract of transport.Link.
func TestTappedLinksKeepTheContract(t *testing.T) {
	proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
		a, b = inmem.Pipe(inmem.Options{})
		ignore := func(transcript.Entry) {}
		return transcript.TapLink(a, 1, ignore), transcript.TapLink(b, 2, ignore)
	}, proptest.ContractOptions{})

}

// converse sends a frame in each direction over each of two links, and one that is
// refused.
func converse(t *testing.T, observe func(transcript.Entry)) {
	t.Helper()
	tapped := transcript.Tap(inmem.New(func(peer transport.Link) {
		peer.Bind(peertest.Ignore{})
		if err := peer.Send(transport.Outbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{"text":"` + strings.Repeat("long ", 30) + `"}}`)}); err != nil {
			t.Error(err)
		}
	}, inmem.Options{QueueFrames: 1}), observe)
	for range 2 {
		link, err := tapped.Open(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		link.Bind(peertest.Ignore{})
		if err := link.Send(transport.Outbound{Frame: []byte(`{"jsonrpc": "2.0", "id": 1, "method": "ping"}`)}); err != nil {
			t.Fatal(err)
		}
		if err := link.Send(transport.Outbound{Frame: []byte(`{}`)}); !errors.Is(err, transport.ErrBusy) {
			t.Fatal(err)
		}
		<-time.After(1500 * time.Millisecond)
		link.Grant(transport.Main, 1)
		link.Close(0)
	}
}

// A transcript is readable text, and is read back completely.
func TestTranscriptIsReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		w := transcript.NewWriter(&text, transcript.Options{Times: true, Rewrite: func(frame []byte) []byte {
			return bytes.ReplaceAll(frame, []byte("ping"), []byte("pong"))
		}})
		converse(t, w.Observe)
		const long = `{
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
      "text": "long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long "
    }
  }
`
		want := `+0.000s = opened
+0.000s > {"jsonrpc":"2.0","id":1,"method":"pong"}
+0.000s > {}
+0.000s = refused: transport: link busy
+1.500s < ` + long + `+1.500s = lost: transport: link closed
+1.500s 2= opened
+1.500s 2> {"jsonrpc":"2.0","id":1,"method":"pong"}
+1.500s 2> {}
+1.500s 2= refused: transport: link busy
+3.000s 2< ` + long + "+3.000s 2= lost: transport: link closed\n"
		if text.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &text, want)
		}
		entries, err := transcript.Read(&text)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Kind.String())
		}
		if got := strings.Join(all, " "); got != "opened sent received lost opened sent received lost" {
			t.Error(got)
		}
		if raw := string(entries[2].Frame); !json.Valid(entries[2].Frame) || strings.Contains(raw, "\n") || entries[7].Link != 2 || entries[7].Err == nil {
			t.Error(raw, entries[7])
		}
	})
}

// What Writer writes, Read reads back.
func TestReadIsTheInverseOfWrite(t *testing.T) {
	frame := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) []byte {
			raw, err := json.Marshal(map[string]any{"params": s})
			if err != nil {
				panic(err)
			}
			return raw
		}))
	rapid.Check(t, func(t *rapid.T) {
		var text bytes.Buffer
		w := transcript.NewWriter(&text, transcript.Options{Times: rapid.Bool().Draw(t, "times")})
		var want []transcript.Entry
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			e := transcript.Entry{
				Kind: rapid.SampledFrom([]transcript.Kind{transcript.Opened, transcript.Sent, transcript.Received, transcript.Skipped, transcript.Failed, transcript.Lost}).Draw(t, "kind"),
				Link: rapid.IntRange(1, 12).Draw(t, "link"),
			}
			switch e.Kind {
			case transcript.Sent, transcript.Received:
				e.Frame = frame.Draw(t, "frame")
			case transcript.Skipped, transcript.Failed, transcript.Lost:
				e.Err = errors.New(rapid.StringMatching(`[a-z]{1,5}(: [a-z]{1,5}){0,2}`).Draw(t, "reason"))
			}
			w.Observe(e)
			if compact := new(bytes.Buffer); json.Compact(compact, e.Frame) == nil {
				e.Frame = compact.Bytes()
			}
			want = append(want, e)
		}
		got, err := transcript.Read(&text)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("got %d entries, want %d", len(got), len(want))
		}
		for i := range want {
			if g, w := got[i], want[i]; g.Kind != w.Kind || g.Link != w.Link || !bytes.Equal(g.Frame, w.Frame) || !reflect.DeepEqual(g.Err, w.Err) {
				t.Fatalf("entry %d: got %+v, want %+v", i, g, w)
			}
		}
	})
}

// The error of Read names the wrong line.
func TestReadNamesTheWrongLine(t *testing.T) {
	for text, line := range map[string]int{
		"what\n":                                 1,
		"# a comment\n\n= opened\n= jumped\n":    4,
		"= opened\n> {\n  \"a\":\n  }\n= lost\n": 2,
		"> {}\n99999999999999999999> {}\n":       2,
		"= opened\n<! \"unterminated\n":          2,
		"= sent\n":                               1,
	} {
		_, err := transcript.Read(strings.NewReader(text))
		var wrong *transcript.SyntaxError
		if !errors.As(err, &wrong) || wrong.Line != line {
			t.Errorf("%q: %v, want a *transcript.SyntaxError and wrong.Line == %v", text, err, line)
		}
	}
}

type failing struct{ writes int }

func (f *failing) Write([]byte) (int, error) {
	f.writes++
	return 0, fmt.Errorf("full, %d", f.writes)
}

// Writer returns its first error from then on, and writes nothing more.
func TestWriterKeepsItsFirstError(t *testing.T) {
	to := new(failing)
	w := transcript.NewWriter(to, transcript.Options{})
	w.Observe(transcript.Entry{})
	w.Observe(transcript.Entry{})
	if err := w.Err(); err == nil || err.Error() != "full, 1" || to.writes != 1 {
		t.Errorf("got %v after %d writes, want the first error after one", err, to.writes)
	}
}

// Writer rewrites frames in both directions, also those that are not JSON. A frame of up to 120 bytes is one line, as an error is always.
func TestWhatAWriterWrites(t *testing.T) {
	var text bytes.Buffer
	w := transcript.NewWriter(&text, transcript.Options{Rewrite: func(frame []byte) []byte {
		return bytes.ReplaceAll(frame, []byte("secret"), []byte("***"))
	}})
	short := `"` + strings.Repeat("x", 118) + `"`
	for _, e := range []transcript.Entry{
		{Kind: transcript.Sent, Link: 1, Frame: []byte(`{"a": "secret"}`)},
		{Kind: transcript.Received, Link: 1, Frame: []byte(`{"b": "secret"}`)},
		{Kind: transcript.StreamOpened, Link: 1, Stream: 1},
		{Kind: transcript.Received, Link: 2, Frame: []byte("secret")},
		{Kind: transcript.Sent, Link: 1, Frame: []byte(`[` + short[:117] + `"]`)},
		{Kind: transcript.Sent, Link: 1, Frame: []byte(`[` + short[:118] + `"]`)},
		{Kind: transcript.Skipped, Link: 1, Err: errors.New("too\n  long")},
	} {
		w.Observe(e)
	}
	want := `> {"a":"***"}
< {"b":"***"}
2<! "***"
> [` + short[:117] + `"]
> [
    ` + short[:118] + `"
  ]
= skipped: too long
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &text, want)
	}
}

// Read takes lines of other systems and a last one without an end, keeps the colons of a reason, and leaves out what was refused of the same link
// only. It returns the error of its reader.
func TestWhatIsRead(t *testing.T) {
	broken := errors.New("broken")
	text := "= opened\r\n\t\n> {}\r\n2> []\n= refused: busy\n2= lost: a:b: c\n< {}"
	for name, r := range map[string]io.Reader{"all": strings.NewReader(text), "broken": io.MultiReader(strings.NewReader(text+"\n"), iotest.ErrReader(broken))} {
		entries, err := transcript.Read(r)
		if name == "broken" && err != broken || name == "all" && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, fmt.Sprintf("%d %s %s %v", e.Link, e.Kind, e.Frame, e.Err))
		}
		if got, want := strings.Join(all, ", "), "1 opened  <nil>, 2 sent [] <nil>, 2 lost  a:b: c, 1 received {} <nil>"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if _, err := transcript.Read(strings.NewReader("0> {}\n")); err == nil {
		t.Error("a link of the number 0 is read")
	}
}

// A scripted link notes what is sent, and a listener what it is told.
type (
	scripted struct {
		transport.Link
		note    func(string, ...any)
		to      transport.Receiver
		refuses error
	}
	listener struct{ note func(string, ...any) }
)

func (l *scripted) Bind(to transport.Receiver) { l.to = to }

func (l *scripted) Send(o transport.Outbound) error {
	l.note("link: sent %s", o.Frame)
	return l.refuses
}

func (l listener) Receive(in transport.Inbound) { l.note("received %s %v", in.Frame, in.Err) }
func (l listener) StreamOpened(s transport.Stream, tag transport.Tag) {
	l.note("stream %d of %d", s, tag)
}
func (l listener) StreamLost(loss transport.StreamLoss) { l.note("stream lost %d", loss.Stream) }
func (l listener) Writable()                            { l.note("writable") }
func (l listener) Failed(f transport.Failure)           { l.note("failed %d", f.Tag) }
func (l listener) Doubt(tag transport.Tag, why error)   { l.note("doubt %d: %v", tag, why) }
func (l listener) Ended()                               { l.note("ended") }
func (l listener) Lost(loss transport.Loss)             { l.note("lost: %v", loss.Reason) }

// A tap reports all that is known of each frame and event: what is sent before the link has it, and the rest before the receiver has it.
func TestWhatATapReports(t *testing.T) {
	var all []string
	note := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	gone, link := errors.New("gone"), &scripted{note: note}
	tapped := transcript.TapLink(link, 3, func(e transcript.Entry) {
		note("tap %d: %s, stream %d, frame %s, %v, unsent %v, tag %d", e.Link, e.Kind, e.Stream, e.Frame, e.Err, e.Unsent, e.Tag)
	})
	tapped.Bind(listener{note})
	_ = tapped.Send(transport.Outbound{Stream: 2, Tag: 7, Frame: []byte("1")})
	link.refuses = gone
	if err := tapped.Send(transport.Outbound{Tag: 8, Frame: []byte("2")}); err != gone {
		t.Errorf("Send returned %v, want %v", err, gone)
	}
	link.to.Receive(transport.Inbound{Stream: 2, Frame: []byte("3")})
	link.to.Receive(transport.Inbound{Err: gone})
	link.to.StreamOpened(4, 7)
	link.to.StreamLost(transport.StreamLoss{Stream: 4, Reason: gone})
	link.to.Writable()
	link.to.Failed(transport.Failure{Tag: 7, Err: gone, Unsent: true})
	link.to.Failed(transport.Failure{Tag: 8, Err: gone})
	link.to.(transport.Doubter).Doubt(9, gone)
	link.to.Ended()
	link.to.Lost(transport.Loss{Reason: gone, Unsent: []transport.Tag{5}})
	want := `tap 3: opened, stream 0, frame , <nil>, unsent [], tag 0
tap 3: sent, stream 2, frame 1, <nil>, unsent [], tag 7
link: sent 1
tap 3: sent, stream 0, frame 2, <nil>, unsent [], tag 8
link: sent 2
tap 3: refused, stream 0, frame 2, gone, unsent [], tag 8
tap 3: received, stream 2, frame 3, <nil>, unsent [], tag 0
received 3 <nil>
tap 3: skipped, stream 0, frame , gone, unsent [], tag 0
received  gone
tap 3: stream opened, stream 4, frame , <nil>, unsent [], tag 7
stream 4 of 7
tap 3: stream lost, stream 4, frame , gone, unsent [], tag 0
stream lost 4
writable
tap 3: failed, stream 0, frame , gone, unsent [7], tag 7
failed 7
tap 3: failed, stream 0, frame , gone, unsent [], tag 8
failed 8
doubt 9: gone
tap 3: ended, stream 0, frame , <nil>, unsent [], tag 0
ended
tap 3: lost, stream 0, frame , gone, unsent [5], tag 0
lost: gone`
	if got := strings.Join(all, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// refusing fails the first Open.
type refusing struct {
	transport.Transport
	opens int
}

func (r *refusing) Open(ctx context.Context) (transport.Link, error) {
	if r.opens++; r.opens == 1 {
		return nil, errors.New("not yet")
	}
	return r.Transport.Open(ctx)
}

func (r *refusing) Unwrap() transport.Transport { return r.Transport }

// A tap keeps the facts about its transport, and counts the links that were opened.
func TestTheLinksOfATap(t *testing.T) {
	var opened []int
	tapped := transcript.Tap(&refusing{Transport: inmem.New(func(peer transport.Link) { peer.Bind(peertest.Ignore{}) }, inmem.Options{})}, func(e transcript.Entry) {
		if e.Kind == transcript.Opened {
			opened = append(opened, e.Link)
		}
	})
	if !transport.TraitsOf(tapped).OpensAtOnce {
		t.Error("the facts about the transport are lost")
	}
	for range 3 {
		if link, err := tapped.Open(t.Context()); err == nil {
			link.Bind(peertest.Ignore{})
			link.Close(0)
		}
	}
	if !slices.Equal(opened, []int{1, 2}) {
		t.Errorf("the links %v were opened, want 1 and 2", opened)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("= opened\n+0.1s 2> {\"a\":\n  1}\n<! \"x\"\n= lost: gone\n")
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := transcript.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var again bytes.Buffer
		w := transcript.NewWriter(&again, transcript.Options{})
		kept := 0
		for _, e := range entries {
			w.Observe(e)
			if e.Kind != transcript.StreamOpened {
				kept++
			}
		}
		if back, err := transcript.Read(&again); err != nil || len(back) != kept {
			t.Errorf("got %d entries, want %d: %v", len(back), kept, err)
		}
	})
}

// keptLink is a link with Keep and Kept.
type keptLink struct {
	transport.Link
	state []byte
}

func (k *keptLink) Keep(state []byte)                    { k.state = state }
func (k *keptLink) Kept() (state []byte, continues bool) { return k.state, true }

// What a server keeps through a tapped link reaches the link behind it, if that is a Keeper.
func TestTappedLinksKeepForTheLinkBehindThem(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	ignore := func(transcript.Entry) {}
	inner := &keptLink{Link: a}
	tapped := transcript.TapLink(inner, 1, ignore)
	keeper, _ := transport.As[transport.Keeper](tapped)
	keeper.Keep([]byte("state"))
	if state, continues := keeper.Kept(); string(inner.state) != "state" || string(state) != "state" || !continues {
		t.Errorf("got %q, %v, and the link behind has %q", state, continues, inner.state)
	}
	plain := transcript.TapLink(b, 2, ignore)
	if _, keeps := transport.As[transport.Keeper](plain); keeps {
		t.Error("a tapped link in memory keeps something")
	}
	tapped.Close(0)
	plain.Close(0)
}
