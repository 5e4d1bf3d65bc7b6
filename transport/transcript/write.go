package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options configure a Writer. The zero value of each field means its default.
type Options struct {
	Times bool // begin each line with the time since the first entry

	// Rewrite returns what to write in place of a frame, for instance without
	// secrets, or without values that differ from run to run. It must not change its
	// argument. Nil: frames are written unchanged.
	Rewrite func(frame []byte) []byte
}

// A Writer writes the entries that a tap reports. It is safe for concurrent use.
type Writer struct {
	options Options

	mu    sync.Mutex
	to    io.Writer
	begun time.Time
	err   error
}

// NewWriter returns a Writer. Pass its Observe method to [Tap].
func NewWriter(w io.Writer, o Options) *Writer { return &Writer{to: w, options: o} }

// Err returns the first error of the underlying writer. After an error, the Writer writes
// nothing more.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Observe writes an entry immediately, with one Write. It leaves out StreamOpened entries,
// because they follow from the frames.
func (w *Writer) Observe(e Entry) {
	if e.Kind == StreamOpened {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	var line bytes.Buffer
	if w.options.Times {
		if w.begun.IsZero() {
			w.begun = time.Now()
		}
		fmt.Fprintf(&line, "+%.3fs ", time.Since(w.begun).Seconds())
	}
	if e.Link > 1 {
		line.WriteString(strconv.Itoa(e.Link))
	}
	switch e.Kind {
	case Sent, Received:
		w.frame(&line, e)
	default:
		line.WriteString("= " + e.Kind.String())
		if e.Err != nil {
			line.WriteString(": " + strings.Join(strings.Fields(e.Err.Error()), " "))
		}
	}
	line.WriteByte('\n')
	_, w.err = w.to.Write(line.Bytes())
}

// longest is how long a frame may be to be written on one line.
const longest = 120

func (w *Writer) frame(line *bytes.Buffer, e Entry) {
	frame, sign := e.Frame, ">"
	if e.Kind == Received {
		sign = "<"
	}
	if w.options.Rewrite != nil {
		frame = w.options.Rewrite(frame)
	}
	var compact bytes.Buffer
	switch err := json.Compact(&compact, frame); {
	case err != nil:
		line.WriteString(sign + "! " + strconv.Quote(string(frame)))
	case compact.Len() <= longest:
		line.WriteString(sign + " " + compact.String())
	default:
		line.WriteString(sign + " ")
		_ = json.Indent(line, compact.Bytes(), "  ", "  ") // it is JSON
	}
}
