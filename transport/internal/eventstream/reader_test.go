package eventstream

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/transport"
)

const plenty = 1 << 20

// all reads a stream to its end.
func all(t *testing.T, from io.Reader, limit int) (events []Event) {
	t.Helper()
	r := NewReader(from, limit)
	for {
		switch e, err := r.Next(); err {
		case nil:
			events = append(events, e)
		case io.EOF:
			return events
		default:
			t.Fatalf("after %d events: %v", len(events), err)
		}
	}
}

func message(id, data string) Event {
	return Event{Type: "message", ID: id, Data: []byte(data)}
}

// The reader parses each kind of line as the specification of event streams says,
// however the bytes arrive.
//
// Guarantees: G-0008.8, G-0022.14
func TestReaderFollowsTheStandard(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []Event
	}{
		"line feeds":                      {"data: a\n\ndata: b\n\n", []Event{message("", "a"), message("", "b")}},
		"carriage returns":                {"data: a\r\rdata: b\r\r", []Event{message("", "a"), message("", "b")}},
		"both":                            {"data: a\r\n\r\ndata: b\r\n\r\n", []Event{message("", "a"), message("", "b")}},
		"mixed":                           {"data: a\r\n\ndata: b\r\r\n", []Event{message("", "a"), message("", "b")}},
		"one after the other":             {"data: a\r\rdata: b\n\n", []Event{message("", "a"), message("", "b")}},
		"a byte order mark":               {"\xef\xbb\xbfdata: a\n\n", []Event{message("", "a")}},
		"one byte order mark only":        {"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", nil},
		"half a byte order mark":          {"\xef\xbbdata: a\n\ndata: b\n\n", []Event{message("", "b")}},
		"lines are joined":                {"data: a\ndata:\ndata: b\n\n", []Event{message("", "a\n\nb")}},
		"lines of both are joined":        {"data: a\r\ndata: b\r\ndata\rdata: c\n\r\n", []Event{message("", "a\nb\n\nc")}},
		"one space of an id is taken":     {"id:  1 \ndata: a\n\n", []Event{message(" 1 ", "a")}},
		"one space is taken":              {"data:  a\n\ndata:b\n\n", []Event{message("", " a"), message("", "b")}},
		"data without a colon":            {"data\ndata\n\n", []Event{message("", "\n")}},
		"a longer name":                   {"database: a\nid: 1\n\n", []Event{{Type: "message", ID: "1"}}},
		"names are case-sensitive":        {"Data: a\n\n", nil},
		"comments and unknown fields":     {": hello\nfoo: bar\nfoo\ndata: a\n: more\n\n", []Event{message("", "a")}},
		"a type":                          {"event: x\ndata: a\n\ndata: b\n\n", []Event{{Type: "x", Data: []byte("a")}, message("", "b")}},
		"a type alone":                    {"event: x\n\n", nil},
		"the id persists":                 {"id: 1\ndata: a\n\ndata: b\n\n", []Event{message("1", "a"), message("1", "b")}},
		"an empty id resets":              {"id: 1\ndata: a\n\nid\ndata: b\n\n", []Event{message("1", "a"), message("", "b")}},
		"an id with NUL is ignored":       {"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", []Event{message("1", "a"), message("1", "b")}},
		"an id that begins with NUL":      {"id: \x002\ndata: a\n\n", []Event{message("", "a")}},
		"an event with an id and no data": {"id: 1\nretry: 500\ndata:\n\n", []Event{{Type: "message", ID: "1", Retry: 500 * time.Millisecond}}},
		"an id alone":                     {"id: 1\n\n", []Event{{Type: "message", ID: "1"}}},
		"a delay alone":                   {"retry: 20\n\n", []Event{{Type: "message", Retry: 20 * time.Millisecond}}},
		"a delay is digits":               {"retry: -1\nretry: 1.5\nretry:\nretry: 0x1\ndata: a\n\n", []Event{message("", "a")}},
		"a delay is at most a day":        {"retry: 99999999999999999999999\n\n", []Event{{Type: "message", Retry: 24 * time.Hour}}},
		"a delay is just over a day":      {"retry: 86400001\n\n", []Event{{Type: "message", Retry: 24 * time.Hour}}},
		"an invalid delay is no event":    {"retry: -1\n\nretry:\n\nretry: 1:\n\n", nil},
		"a delay of nothing":              {"retry: 0\n\n", []Event{{Type: "message", Retry: time.Millisecond}}},
		"a delay is one event's":          {"retry: 20\n\ndata: a\n\n", []Event{{Type: "message", Retry: 20 * time.Millisecond}, message("", "a")}},
		"an unfinished event":             {"data: a\n\ndata: b\n", []Event{message("", "a")}},
		"an unfinished line":              {"data: a\n\ndata: b", []Event{message("", "a")}},
		"nothing":                         {"", nil},
		"empty lines":                     {"\n\n\r\n\r", nil},
		"a line too long for a field":     {"id: " + strings.Repeat("1", maxLine) + "\ndata: a\n\n", []Event{message("", "a")}},
		"a line just short enough":        {"id: " + strings.Repeat("1", maxLine-len("id: ")) + "\ndata: a\n\n", []Event{message(strings.Repeat("1", maxLine-len("id: ")), "a")}},
		"a long comment":                  {":" + strings.Repeat("-", 5*readAhead) + "\ndata: a\n\n", []Event{message("", "a")}},
		"data in many pieces":             {"data: " + strings.Repeat("a", 5*readAhead) + "\n\n", []Event{message("", strings.Repeat("a", 5*readAhead))}},
		"a field line ends with the read": {"data: " + strings.Repeat("a", readAhead-len("data: ")-2) + "\n\ndata: b\n\n", []Event{message("", strings.Repeat("a", readAhead-len("data: ")-2)), message("", "b")}},
	} {
		t.Run(name, func(t *testing.T) {
			for how, from := range map[string]io.Reader{
				"at once":      strings.NewReader(c.stream),
				"byte by byte": iotest.OneByteReader(strings.NewReader(c.stream)),
				"with the end": iotest.DataErrReader(strings.NewReader(c.stream)),
				"line by line": &portions{[]byte(c.stream), maxLine}, // ends with a line just short enough
			} {
				got := all(t, from, plenty)
				if diff := cmp.Diff(c.want, got, cmp.Comparer(bytes.Equal)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

// An event of exactly the limit is read. A larger one is refused, and the next one is
// read.
//
// Guarantees: G-0022.14
func TestReaderRefusesAndSkipsAnOversizedEvent(t *testing.T) {
	const limit = 8
	for name, event := range map[string]string{
		"one line":         "data: 123456789\n",
		"many lines":       "data: 1234\ndata: 5678\n",
		"more lines after": "data: 123456789\nid: 2\ndata: 1\n",
		"empty lines":      strings.Repeat("data\n", limit+2),
	} {
		t.Run(name, func(t *testing.T) {
			stream := "data: 12345678\n\n" + event + "\ndata: after\n\n"
			for portion := 1; portion <= len(stream); portion++ {
				r := NewReader(&portions{[]byte(stream), portion}, limit)
				if e, err := r.Next(); err != nil || string(e.Data) != "12345678" {
					t.Fatalf("an event of exactly the limit: got %q, %v, want %q", e.Data, err, "12345678")
				}
				var oversized *transport.OversizedError
				if _, err := r.Next(); !errors.As(err, &oversized) || oversized.Limit != limit || oversized.Size <= limit || portion == 1 && oversized.Size != limit+1 {
					t.Fatalf("an event above the limit: got %v", err)
				}
				if e, err := r.Next(); err != nil || string(e.Data) != "after" {
					t.Fatalf("the event after it: got %q, %v", e.Data, err)
				}
				if _, err := r.Next(); err != io.EOF {
					t.Fatalf("the end: got %v, want %v", err, io.EOF)
				}
			}
		})
	}
}

// The reader keeps neither endless data nor an endless comment in memory.
//
// Guarantees: G-0022.14
func TestReaderRefusesBeforeTheEnd(t *testing.T) {
	const limit = 64 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	comment := io.MultiReader(strings.NewReader(":"), io.LimitReader(endless{}, 32<<20), strings.NewReader("\n"))
	data := io.MultiReader(strings.NewReader("data:"), endless{})
	var oversized *transport.OversizedError
	if _, err := NewReader(io.MultiReader(comment, data), limit).Next(); !errors.As(err, &oversized) {
		t.Fatalf("endless data: got %v, want a *transport.OversizedError", err)
	}
	runtime.ReadMemStats(&after)
	if held := after.TotalAlloc - before.TotalAlloc; held > 16*limit {
		t.Errorf("%d bytes were allocated for a limit of %d, want less", held, limit)
	}
}

// endless is a stream of one letter.
type endless struct{}

func (endless) Read(to []byte) (int, error) {
	for i := range to {
		to[i] = 'x'
	}
	return len(to), nil
}

// The reader returns an event as soon as it is complete: a reader that waited for
// another byte of this pipe would not return.
//
// Guarantees: G-0022.14
func TestReaderReturnsACompleteEventAtOnce(t *testing.T) {
	for _, stream := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		from, to := io.Pipe()
		go to.Write([]byte(stream))
		if e, err := NewReader(from, plenty).Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: got %q, %v, want %q", stream, e.Data, err, "a")
		}
		from.Close()
	}
}

// An error of the stream is returned after the events before it.
func TestReaderReturnsTheErrorOfTheStream(t *testing.T) {
	cut := errors.New("cut")
	for _, begun := range []string{"", "\xef", "\xef\xbb", "\xef\xbb\xbf", "d"} { // the connection returns its error once
		if _, err := NewReader(io.MultiReader(strings.NewReader(begun), &failing{cut}), plenty).Next(); !errors.Is(err, cut) {
			t.Errorf("the error after %q: got %v", begun, err)
		}
	}
	r := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(cut)), plenty)
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Fatalf("the event before: got %q, %v", e.Data, err)
	}
	if _, err := r.Next(); !errors.Is(err, cut) {
		t.Fatalf("the error: got %v, want %v", err, cut)
	}
}

// failing returns its error once, and io.EOF from then on.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) {
	err := f.err
	f.err = io.EOF
	return 0, err
}

// After an interruption, the reader continues with the last id and delay.
func TestReaderResumes(t *testing.T) {
	r := NewReader(strings.NewReader("data: a\n\nid: 6\ndata: b\n\n"), plenty)
	r.ResumeAfter("5")
	for _, want := range []Event{message("5", "a"), message("6", "b")} {
		if e, err := r.Next(); err != nil || !cmp.Equal(e, want) {
			t.Errorf("got %+v, %v; want %+v", e, err, want)
		}
	}
}

// Append writes the shortest text of an event, because proxies and logs show it.
func TestAppendWritesNoMoreThanItMust(t *testing.T) {
	for want, e := range map[string]Event{
		"data: a\n\n":           {Data: []byte("a")},
		"retry: 10\ndata: \n\n": {Retry: 10 * time.Millisecond},
		"data: b\n\n":           {Type: "message", Data: []byte("b")},
		"event: x\nid: 1\nretry: 1500\ndata: c\n\n":     {Type: "x", ID: "1", Retry: 1500 * time.Millisecond, Data: []byte("c")},
		"data: \ndata: a\ndata: b\ndata: c\ndata: \n\n": {Data: []byte("\na\rb\nc\r")},
		"data: \ndata: d\n\n":                           {Data: []byte("\rd")},
	} {
		if got := string(Append([]byte("before\n"), e)); got != "before\n"+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The reader returns the events that Append has written.
func TestReaderReadsWhatAppendWrites(t *testing.T) {
	want := []Event{
		{Type: "message", ID: "1", Retry: time.Second, Data: []byte("a\nb")},
		{Type: "other", ID: "1", Data: []byte{}},
		{Type: "message", ID: "2", Data: []byte(" x: y ")},
	}
	var stream []byte
	for _, e := range want {
		stream = Append(stream, e)
	}
	if diff := cmp.Diff(want, all(t, bytes.NewReader(stream), plenty), cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A Reader that was reset returns what a new one returns, whatever it has read before.
// It does not change the events that it has returned.
//
// Guarantees: G-0058.3
func TestResetReadsLikeANewReader(t *testing.T) {
	const second = "\xef\xbb\xbfdata: a\n\ndata: b\nid: 7\n\ndata: c\n\n"
	want := all(t, strings.NewReader(second), 10)
	for _, first := range []string{
		"", "data: a\n\n", "id: 1\ndata: a\n\ndata: half", "data: a\n\n" + strings.Repeat("x", 2000), "data: a\r\r",
		"data: a\n\ndata: longer than the limit", "data: a\n\nevent: x\nid: 9\n",
	} {
		r := NewReader(strings.NewReader(first), 10)
		r.ResumeAfter("5")
		kept, _ := r.Next() // the empty stream has no event
		r.Next()            // reads the unfinished event
		before := string(kept.Data)
		r.Reset(strings.NewReader(second), 10)
		var got []Event
		for e, err := r.Next(); err == nil; e, err = r.Next() {
			got = append(got, e)
		}
		if diff := cmp.Diff(want, got); diff != "" || string(kept.Data) != before {
			t.Errorf("after %q with the event %q: %s", first, kept.Data, diff)
		}
	}
}

// FuzzReader compares a Reader that gets the stream in any portions with a direct
// implementation of the standard for a stream in memory.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\n", "\xef\xbb\xbfdata\r\n\r\n", "id: 1\rretry: 5\rdata:b\r\r", "data: a\ndata: b\n\n:c\n\nid\n\n",
		"event: e\ndata\n\n", "id: \x00\ndata: " + strings.Repeat("x", 40) + "\n\ndata: y\n\n", "data: x\n\r\ndata: y\r\n\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, portion uint8) {
		const limit = 32
		r := NewReader(&portions{stream, int(portion) + 1}, limit)
		for i, want := range reference(stream, limit) {
			got, err := r.Next()
			var oversized *transport.OversizedError
			if refused := errors.As(err, &oversized); refused != want.refused || err != nil && !refused {
				t.Fatalf("event %d: %v, want refused %v", i, err, want.refused)
			}
			if diff := cmp.Diff(want.Event, got, cmp.Comparer(bytes.Equal)); diff != "" && !want.refused {
				t.Fatalf("event %d (-want +got):\n%s", i, diff)
			}
		}
		// A refused event may have no end.
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("after the last event: got %v", err)
		}
	})
}

// portions is a stream that arrives a few bytes at a time.
type portions struct {
	left []byte
	size int
}

func (p *portions) Read(to []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(to, p.left[:min(p.size, len(p.left))])
	p.left = p.left[n:]
	return n, nil
}

type outcome struct {
	Event
	refused bool
}

// reference reads a stream that is completely in memory.
func reference(stream []byte, limit int) (outcomes []outcome) {
	text := strings.TrimPrefix(string(stream), "\xef\xbb\xbf")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var id, kind string
	var retry time.Duration
	var data []string
	worth, refused := false, false
	for i, line := range lines {
		last := i == len(lines)-1
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "data" && (!last || len(line) > len("data:")):
			data, worth = append(data, value), true
			if !refused && len(strings.Join(data, "\n")) > limit {
				refused = true
				outcomes = append(outcomes, outcome{refused: true})
			}
		case last:
		case line == "":
			if worth && !refused {
				e := Event{Type: "message", ID: id, Retry: retry, Data: []byte(strings.Join(data, "\n"))}
				if kind != "" {
					e.Type = kind
				}
				outcomes = append(outcomes, outcome{Event: e})
			}
			kind, retry, data, worth, refused = "", 0, nil, false, false
		case len(line) > maxLine:
		case name == "event":
			kind = value
		case name == "id" && !strings.Contains(value, "\x00"):
			id, worth = value, true
		case name == "retry" && value != "" && strings.Trim(value, "0123456789") == "":
			ms := strings.TrimLeft(value, "0")
			if retry = 24 * time.Hour; len(ms) <= 9 {
				d, _ := time.ParseDuration("0" + ms + "ms")
				retry = max(time.Millisecond, min(retry, d))
			}
			worth = true
		}
	}
	return outcomes
}

func BenchmarkReader(b *testing.B) {
	for name, size := range map[string]int{"64B": 64, "64KiB": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			event := Append(nil, Event{ID: "1", Data: bytes.Repeat([]byte("x"), size)})
			r := NewReader(&repeating{event: event}, plenty)
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// repeating repeats one event without end.
type repeating struct {
	event []byte
	at    int
}

func (r *repeating) Read(to []byte) (int, error) {
	n := copy(to, r.event[r.at:])
	r.at = (r.at + n) % len(r.event)
	return n, nil
}

// A Reader knows that the whole stream was read, and forgets that for the next stream.
func TestReaderKnowsTheEnd(t *testing.T) {
	const event = "data: 1\n\n"
	pipe, write := io.Pipe()
	r := NewReader(pipe, 100)
	go write.Write([]byte(event))
	if _, err := r.Next(); err != nil || r.Ended() {
		t.Errorf("got %v, ended %t, want an event and more to come", err, r.Ended())
	}
	write.Close()
	if _, err := r.Next(); err != io.EOF || !r.Ended() {
		t.Errorf("got %v, ended %t, want the end", err, r.Ended())
	}
	r.Reset(strings.NewReader(event), 100)
	if r.Ended() {
		t.Error("a new stream has ended before it was read")
	}
	r.Reset(iotest.DataErrReader(strings.NewReader(event)), 100)
	if _, err := r.Next(); err != nil || !r.Ended() {
		t.Errorf("got %v, ended %t, want an event, and the end with it", err, r.Ended())
	}
	r.Reset(iotest.ErrReader(errors.New("broken")), 100)
	if _, err := r.Next(); err == nil || r.Ended() {
		t.Errorf("got %v, ended %t, want an error that is no end", err, r.Ended())
	}
	r.Reset(strings.NewReader(event), 0)
	if _, err := r.Next(); !errors.As(err, new(*transport.OversizedError)) {
		t.Errorf("got %v, want an event above the limit of this stream", err)
	}
}

// What a Reader has read ahead of one stream does not become part of the next.
func TestResetForgetsReadAhead(t *testing.T) {
	r := NewReader(strings.NewReader("data: 1\n\ndata: 2\n\n"), 100)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	r.Reset(strings.NewReader("data: 3\n\n"), 100)
	if e, err := r.Next(); err != nil || string(e.Data) != "3" {
		t.Errorf("got %q, %v, want 3", e.Data, err)
	}
}
