package transcript_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
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

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

// Writer returns its first error from then on.
func TestWriterKeepsItsFirstError(t *testing.T) {
	w := transcript.NewWriter(failing{}, transcript.Options{})
	w.Observe(transcript.Entry{})
	w.Observe(transcript.Entry{})
	if err := w.Err(); err == nil || err.Error() != "full" {
		t.Error(err)
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
