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

// told reads the lines of a server's standard error as they arrive.
type told struct {
	stream deadlineReader
	lines  *bufio.Scanner
}

type deadlineReader interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

func newTold(stream deadlineReader) *told { return &told{stream, bufio.NewScanner(stream)} }

// await reads until a line matches, and returns the submatches. It fails at the
// deadline of ctx, and when there are no more lines.
func (t *told) await(ctx context.Context, text *regexp.Regexp) ([]string, error) {
	deadline, _ := ctx.Deadline()
	t.stream.SetReadDeadline(deadline)
	var before []string
	for t.lines.Scan() {
		if found := text.FindStringSubmatch(t.lines.Text()); found != nil {
			return found, nil
		}
		before = append(before, t.lines.Text())
	}
	return nil, fmt.Errorf("the server did not say %q but %q: %w", text, before, cmp.Or(t.lines.Err(), io.EOF))
}
