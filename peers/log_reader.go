package peers

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"time"
)

// logReader reads the lines of a server's standard error as they arrive.
type logReader struct {
	stream deadlineReader
	lines  *bufio.Scanner
}

type deadlineReader interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

func newLogReader(stream deadlineReader) *logReader {
	return &logReader{stream, bufio.NewScanner(stream)}
}

// await reads until a line matches, and returns the submatches. It fails at the
// deadline of ctx, and when there are no more lines.
func (t *logReader) await(ctx context.Context, text *regexp.Regexp) ([]string, error) {
	deadline, _ := ctx.Deadline()
	t.stream.SetReadDeadline(deadline)
	var before []string
	for t.lines.Scan() {
		if found := text.FindStringSubmatch(t.lines.Text()); found != nil {
			return found, nil
		}
		before = append(before, t.lines.Text())
	}
	return nil, fmt.Errorf("the server logged %q, and not %q: %w", text, before, cmp.Or(t.lines.Err(), io.EOF))
}
