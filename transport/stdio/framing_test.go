package stdio

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// Each kind of header is either read or refused with a clear error.
//
// Guarantees: G-0008.6, G-0008.7, G-0008.8
func TestHeaders(t *testing.T) {
	const none = "it has no Content-Length"
	length, long := "expected a length of at most 15 digits", "a header has at most 4096 bytes"
	field := "Content-Length: 1\r\n\r\n"
	longestHeader := "X: " + strings.Repeat("x", 4096-len("X: \r\n")-len(field)) + "\r\n" + field + "1"
	for stream, want := range map[string][]string{
		"":                                  {},
		"Content-Length: 1\r\n\r\n1":        {"1"},
		"content-LENGTH:1\n\n1":             {"1"},
		"\ufeffContent-Length: 1\r\n\r\n1":  {"1"},
		"Content-Length : \t1 \r\n\r\n1":    {"1"},
		"Content-Length: 0001\r\n\r\n1":     {"1"},
		"Content-Length: 3\r\n\r\n\r\n\n":   {"\r\n\n"},
		"\r\n\n Content-Length: 1\r\n\r\n1": {"1"},
		"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 1\r\n\r\n1": {"1"},
		"Content-Length: 0\r\n\r\nContent-Length: 1\r\n\r\n1":                                   {"1"},
		"Content-Length: 5\r\n\r\n12345Content-Length: 1\r\n\r\n1":                              {refused, "1"},
		"Content-Length: 5\r\n\r\n1234":                                                         {refused, errCutOff.Error()},
		"Content-Length: 999999999999999\r\n\r\n1":                                              {refused, errCutOff.Error()},
		"Content-Length: 2\r\n\r\n1":                                                            {errCutOff.Error()},
		"Content-Length: 2\r\n":                                                                 {errCutOff.Error()},
		"Content-Le":                                                                            {errCutOff.Error()},
		"Content-Length: 1\r\n\r\n1 ":                                                           {"1", errCutOff.Error()},
		"Content-Length: 1000000000000000\r\n\r\n1":                                             {length},
		"Content-Length: -1\r\n\r\n1":                                                           {length},
		"Content-Length: +1\r\n\r\n1":                                                           {length},
		"Content-Length: 0x1\r\n\r\n1":                                                          {length},
		"Content-Length: 1 1\r\n\r\n1":                                                          {length},
		"Content-Length: 1\x00\r\n\r\n1":                                                        {length},
		"Content-Length:\r\n\r\n1":                                                              {length},
		"Content-Length: 1\r\nContent-Length: 1\r\n\r\n1":                                       {"the length is given twice"},
		"Content-Type: x\r\n\r\n1":                                                              {none},
		"{\"jsonrpc\":\"2.0\"}\n":                                                               {"expected NAME: VALUE"},
		"ready\n":                                                                               {"expected NAME: VALUE"},
		"X: " + strings.Repeat("x", 4096) + "\r\n":                                              {long},
		strings.Repeat("X: x\r\n", 700):                                                         {long},
		strings.Repeat("\n", 4097):                                                              {long},
		"Content-Length: 1\r\n\r\n1" + strings.Repeat("x", 5000):                                {"1", long},
		longestHeader:                                                                           {"1"},
		"X" + longestHeader:                                                                     {long},
		": 1\r\nContent-Length: 1\r\n\r\n1":                                                     {"expected NAME: VALUE"},
		"Content-Length: 0\r\nContent-Length: 1\r\n\r\n1":                                       {"the length is given twice"},
		"X-2: y\r\nContent-Length: 1\r\n\r\n1":                                                  {"1"},
		"Content-Length: 1\r\n\r\n1\ufeffContent-Length: 1\r\n\r\n1":                            {"1", "expected NAME: VALUE"},
	} {
		got := readFramed(ContentLength.reader(strings.NewReader(stream), 4))
		if !slices.EqualFunc(got, want, strings.HasSuffix) {
			t.Errorf("%.80q: got %q, want %q", stream, got, want)
		}
	}
}

// The error for a header shows the beginning of a long line.
//
// Guarantees: G-0008.7
func TestHeaderErrorsAreShort(t *testing.T) {
	for line, want := range map[string]string{
		strings.Repeat("x", 1000):           strings.Repeat("x", 80),
		"X: " + strings.Repeat("x", 10_000): "X: " + strings.Repeat("x", 77),
		"ready":                             "ready",
	} {
		_, err := ContentLength.reader(strings.NewReader(line+"\n"), 4).next()
		if wrong := (*HeaderError)(nil); !errors.As(err, &wrong) || wrong.Header != want {
			t.Errorf("%.80q: got %v, want a HeaderError for %q", line, err, want)
		}
	}
}

// A header that is too long is refused as soon as that is certain, also if the peer sends nothing more. What ends a stream early is
// the reason of its end.
//
// Guarantees: G-0008.7
func TestWhatFollowsThePartOfAHeader(t *testing.T) {
	broken := errors.New("broken")
	for part, want := range map[string]string{
		strings.Repeat("x", 4096): "a header has at most 4096 bytes",
		strings.Repeat("x", 4095): "broken",
		"":                        "broken",
		"Content-Length: 1\r\n":   "broken",
	} {
		rest := readerFunc(func([]byte) (int, error) { return 0, broken })
		if got := readFramed(ContentLength.reader(io.MultiReader(strings.NewReader(part), rest), 4)); len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("%d bytes of a header: got %q, want %q", len(part), got, want)
		}
	}
}

// The refusal of a frame says how long it is, also when no int32 can.
//
// Guarantees: G-0008.8
func TestRefusalsNameTheLength(t *testing.T) {
	const announced = 5_000_000_000
	_, err := ContentLength.reader(strings.NewReader("Content-Length: 5000000000\r\n\r\n"), 4).next()
	if long := (*transport.OversizedError)(nil); !errors.As(err, &long) || int64(long.Size) != min(announced, math.MaxInt) {
		t.Errorf("got %v, want an OversizedError with the size %d", err, announced)
	}
}

// A frame is whole although the read that completes it also says that the stream has ended.
//
// Guarantees: G-0008.6
func TestTheLastReadCompletesAFrame(t *testing.T) {
	frame := strings.Repeat("x", 3*maxHeader)
	rest := ContentLength.before([]byte(frame)) + frame
	stream := readerFunc(func(p []byte) (n int, err error) {
		if n = copy(p, rest); n == len(rest) {
			err = io.EOF
		}
		rest = rest[n:]
		return n, err
	})
	if got := readFramed(ContentLength.reader(stream, len(frame))); !slices.Equal(got, []string{frame}) {
		t.Errorf("got %.80q, want the frame of %d bytes", got, len(frame))
	}
}

// readFramed reads frames until the end of the stream. The last element is the error
// unless it is io.EOF.
func readFramed(r frameReader) (frames []string) {
	for {
		frame, err := r.next()
		switch {
		case isOversized(err):
			frames = append(frames, refused)
		case err == io.EOF:
			return frames
		case err != nil:
			return append(frames, err.Error())
		default:
			frames = append(frames, string(frame))
		}
	}
}

// A reader gets the frames that a writer has framed, however the bytes are split into
// reads.
//
// Guarantees: G-0008.6
func TestFramesSurviveAnyPortions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3*readAhead).Draw(t, "limit")
		var stream bytes.Buffer
		want := []string{}
		for _, size := range rapid.SliceOfN(rapid.IntRange(1, 4*readAhead), 0, 6).Draw(t, "sizes") {
			frame := strings.Repeat("\n", size)
			stream.WriteString(ContentLength.before([]byte(frame)) + frame)
			if size > limit {
				frame = refused
			}
			want = append(want, frame)
		}
		portions := rapid.SliceOfN(rapid.IntRange(1, 100_000), 1, 10).Draw(t, "portions")
		got := readFramed(ContentLength.reader(&portionedReader{rest: stream.Bytes(), portions: portions, before: func() {}}, limit))
		if !slices.Equal(got, want) {
			t.Fatalf("got %d frames, want %d", len(got), len(want))
		}
	})
}

// FuzzHeaders: any stream is cut into frames within the limit, or refused. A frame can
// be framed and read again.
//
// Guarantees: G-0008.6, G-0008.7
func FuzzHeaders(f *testing.F) {
	for _, stream := range []string{
		"Content-Length: 1\r\n\r\n1", "\r\n\r\ncontent-length:2\n\n{}", "Content-Length: 99\r\n\r\n1",
		"A: b\r\nContent-Length: 3\r\n\r\n123Content-Length: 0\r\n\r\n", "Content-Length: 999999999999999\r\n\r\n",
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 64
		r := ContentLength.reader(bytes.NewReader(stream), limit)
		for {
			frame, err := r.next()
			switch {
			case isOversized(err):
				continue
			case err != nil:
				var header *HeaderError
				if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) && (!errors.As(err, &header) || len(header.Header) > 80) {
					t.Fatalf("got the error %v, want one of a stream", err)
				}
				return
			case len(frame) == 0 || len(frame) > limit:
				t.Fatalf("got a frame of %d bytes", len(frame))
			}
			again := ContentLength.before(frame) + string(frame)
			if got := readFramed(ContentLength.reader(strings.NewReader(again), limit)); len(got) != 1 || got[0] != string(frame) {
				t.Fatalf("%q was read back as %q", frame, got)
			}
		}
	})
}

// A peer that announces a large frame and sends nothing makes the reader allocate
// little.
//
// Guarantees: G-0008.7
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		readFramed(ContentLength.reader(strings.NewReader("Content-Length: 16000000\r\n\r\n{"), 16<<20))
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 100; each > 4*readAhead {
		t.Errorf("each announced frame took %d bytes, want less", each)
	}
}

// With Content-Length framing, a frame keeps its newlines and needs none at its end.
//
// Guarantees: G-0008.6
func TestContentLengthLeavesFramesAlone(t *testing.T) {
	near, far := net.Pipe()
	p := open(t, &Server{In: near, Out: near, Framing: ContentLength})
	q := open(t, &Streams{Framing: ContentLength, Dial: dialled(far)})
	for _, frame := range []string{"{\n}", "\n", strings.Repeat("x\n", batchSize)} {
		q.send(frame)
		p.want(frame)
		p.send(frame)
		q.want(frame)
	}
	q.close(hangGuard)
	receive(t, p.ended, "Ended")
	p.close(hangGuard)
}

// A frame with a wrong header loses the link, and the reason differs from that of a
// peer that has ended.
//
// Guarantees: G-0008.3, G-0008.4, G-0008.7
func TestWrongFrames(t *testing.T) {
	for stream, check := range map[string]func(t *testing.T, server, client *peer){
		"Content-Length: x\r\n\r\n": func(_ *testing.T, server, client *peer) {
			lossAs[*HeaderError](server)
			lossAs[*HeaderError](client)
		},
		"Content-Length: 6\r\n\r\n123456Content-Length: 1\r\n\r\n1": func(t *testing.T, server, client *peer) {
			if refusal, _ := receive(t, server.refused, "refusal"); !isOversized(refusal) {
				t.Errorf("got the refusal %v", refusal)
			}
			server.want("1")
			if oversized := lossAs[*transport.OversizedError](client); oversized.Limit != 5 || oversized.Size != 6 {
				t.Errorf("got the reason %v, want oversized.Limit == 5 and oversized.Size == 6", oversized)
			}
		},
	} {
		var peers []*peer
		var far []net.Conn
		for _, from := range []func(io.ReadWriteCloser) transport.Transport{
			func(s io.ReadWriteCloser) transport.Transport {
				return &Server{In: s, Out: s, Framing: ContentLength, MaxFrame: 5}
			},
			func(s io.ReadWriteCloser) transport.Transport {
				return &Streams{Dial: dialled(s), Framing: ContentLength, MaxFrame: 5}
			},
		} {
			ours, theirs := net.Pipe()
			peers, far = append(peers, open(t, from(ours))), append(far, theirs)
			go io.WriteString(theirs, stream)
		}
		check(t, peers[0], peers[1])
		for i, p := range peers {
			p.close(0)
			far[i].Close()
		}
	}
}
