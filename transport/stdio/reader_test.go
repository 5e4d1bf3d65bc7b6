package stdio

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// The reader splits a stream at newlines and refuses lines above the limit.
//
// Guarantees: G-0008.5, G-0008.8
func TestReaderFrames(t *testing.T) {
	long := strings.Repeat("x", 5*readAhead+7)
	for _, test := range []struct {
		name, stream string
		limit        int
		want         []string
	}{
		{"lines", "1\n22\n333\n", 10, []string{"1", "22", "333"}},
		{"carriage returns", "1\r\n2\r\r\n", 10, []string{"1", "2\r"}},
		{"empty lines", "\n\r\n\n1\n\n", 10, []string{"1"}},
		{"no newline at the end", "1\n2", 10, []string{"1", "2"}},
		{"exactly the limit", "1234\r\n1234\n1234", 4, []string{"1234", "1234", "1234"}},
		{"above the limit", "12345\n1\n12345\r\n2\n12345", 4, []string{refused, "1", refused, "2", refused}},
		{"far above the limit", long + "\n1\n" + long, 4, []string{refused, "1", refused}},
		{"a byte order mark", "\ufeff1\n\ufeff2\n", 10, []string{"1", "\ufeff2"}},
		{"only a byte order mark", "\ufeff\n1\n", 10, []string{"1"}},
		{"longer than the buffer", long + "\n1\n" + long + "\r\n", 1 << 20, []string{long, "1", long}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := readAll(t, &reader{from: strings.NewReader(test.stream), limit: test.limit})
			if !slices.Equal(got, test.want) {
				t.Fatalf("got %.100q, want %.100q", got, test.want)
			}
		})
	}
}

// Whatever the portions, the reader returns the lines that a split of the whole stream
// returns.
//
// Guarantees: G-0008.1, G-0008.5
func TestReaderAgreesWithSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		for _, size := range rapid.SliceOfN(rapid.IntRange(0, 5*readAhead), 0, 8).Draw(t, "lines") {
			stream = append(stream, strings.Repeat("x", size)...)
			stream = append(stream, rapid.SampledFrom([]string{"\n", "\r\n", "\n\n", ""}).Draw(t, "end")...)
		}
		portions := rapid.SliceOfN(rapid.IntRange(1, 100_000), 1, 10).Draw(t, "portions")
		checkReader(t, stream, portions, rapid.IntRange(1, 4*readAhead).Draw(t, "limit"))
	})
}

// Guarantees: G-0008.1, G-0008.5
func FuzzReader(f *testing.F) {
	f.Add([]byte("1\n22\r\n\n333"), []byte{1}, uint16(10))
	f.Add([]byte("12345\n1\r\n\r\n"), []byte{3, 1, 255}, uint16(4))
	f.Add([]byte("\r\r\n\r"), []byte{2}, uint16(1))
	f.Add([]byte("\ufeff1234\n\ufeff1"), []byte{0}, uint16(3))
	f.Add([]byte("\xef\xbb\n1"), []byte{0}, uint16(0))
	f.Add([]byte("\ufeff"), []byte("0"), uint16(0))
	f.Add(bytes.Repeat([]byte("0123456789\n"), 1000), []byte{255, 254}, uint16(9))
	f.Add(bytes.Repeat([]byte("x"), 3*firstBuffer), []byte{255}, uint16(2*firstBuffer))
	f.Fuzz(func(t *testing.T, stream, portions []byte, limit uint16) {
		sizes := []int{1}
		for _, p := range portions {
			sizes = append(sizes, 1+int(p)*int(p))
		}
		checkReader(t, stream, sizes, 1+int(limit))
	})
}

// A refusal says how long the line is, if its end has come, whatever came before it. A carriage return counts for nothing, also if
// its newline comes later.
//
// Guarantees: G-0008.1
func TestTheSizeOfARefusedLine(t *testing.T) {
	stream := "12\n1234\r\n" + strings.Repeat("x", 10) + "\n"
	for _, portions := range [][]int{{100}, {8, 100}} { // the second one ends between carriage return and newline
		r := &reader{limit: 4, from: &portionedReader{rest: []byte(stream), portions: portions, before: func() {}}}
		for _, want := range []string{"12", "1234"} {
			if got, err := r.next(); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		var refused *transport.OversizedError
		if _, err := r.next(); !errors.As(err, &refused) || refused.Size < 10 || refused.Size > 11 {
			t.Errorf("got %v, want a refusal of the 10 bytes of a line", err)
		}
	}
}

// A reader asks for 4 KiB at first, and for twice as much whenever a read brings all that it has asked for, up to 64 KiB.
// What is left of a line stays where it is while there is room behind it.
func TestHowMuchAReaderAsksFor(t *testing.T) {
	const first, most = firstBuffer, readAhead
	for name, test := range map[string]struct {
		comes []int // with each read, at most what was asked for
		want  []int // what was asked for
	}{
		"little":          {[]int{10, 10, 10}, []int{first, first, first}},
		"all, again":      {[]int{most, most, most, most, most, most}, []int{first, 2 * first, 4 * first, 8 * first, most, most}},
		"all, and little": {[]int{first, 10, 10}, []int{first, 2 * first, 2 * first}},
		"little, and all": {[]int{10, most, 10}, []int{first, first, 2 * first}},
	} {
		var asked []int
		comes := test.comes
		r := &reader{limit: 1 << 20, from: readerFunc(func(p []byte) (int, error) {
			asked = append(asked, len(p))
			if len(comes) == 0 {
				return 0, io.EOF
			}
			n := min(len(p), comes[0])
			comes = comes[1:]
			for i := range n {
				p[i] = '\n'
			}
			return n, nil
		})}
		if _, err := r.next(); err != io.EOF {
			t.Fatal(err)
		}
		if got := asked[:len(asked)-1]; !slices.Equal(got, test.want) {
			t.Errorf("%s: it asked for %d bytes, want %d", name, got, test.want)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// refused stands for a line above the limit.
const refused = "above the limit"

// checkReader reads a stream in the given portions, and compares the frames with a
// split at newlines.
func checkReader(t rapid.TB, stream []byte, portions []int, limit int) {
	t.Helper()
	r := &reader{limit: limit}
	r.from = &portionedReader{rest: stream, portions: portions, before: func() {
		held := cap(r.buffer)
		for _, part := range r.parts {
			held += cap(part)
		}
		if bound := limit + 2*readAhead; held > bound {
			t.Fatalf("%d bytes are held, want %d at most", held, bound)
		}
	}}
	if got, want := readAll(t, r), split(stream, limit); !slices.Equal(got, want) {
		t.Fatalf("got %d frames %.200q, want %d %.200q", len(got), got, len(want), want)
	}
}

func split(stream []byte, limit int) (frames []string) {
	for line := range bytes.SplitSeq(bytes.TrimPrefix(stream, []byte("\ufeff")), []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case len(line) > limit:
			frames = append(frames, refused)
		case len(line) > 0:
			frames = append(frames, string(line))
		}
	}
	return frames
}

// readAll keeps the frames until the end, to detect a buffer that is used twice.
func readAll(t rapid.TB, r *reader) []string {
	t.Helper()
	var frames [][]byte
	for {
		frame, err := r.next()
		switch {
		case isOversized(err):
			frame = []byte(refused)
		case err == io.EOF:
			return texts(frames)
		case err != nil:
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
}

func texts(frames [][]byte) (texts []string) {
	for _, frame := range frames {
		texts = append(texts, string(frame))
	}
	return texts
}

// portionedReader is a stream that arrives in portions.
type portionedReader struct {
	rest     []byte
	portions []int
	turn     int
	before   func() // called before each read
}

func (p *portionedReader) Read(b []byte) (int, error) {
	p.before()
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(len(p.rest), p.portions[p.turn%len(p.portions)])])
	p.turn++
	p.rest = p.rest[n:]
	return n, nil
}
