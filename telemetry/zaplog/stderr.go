package zaplog

import (
	"bytes"
	"io"
	"sync"

	"go.uber.org/zap"

	"github.com/bowline-mcp/bowline/telemetry/internal/lines"
)

// Stderr returns a writer that logs each line it receives, at level info. Use it as
// stdio.Command.Stderr, for the standard error of a child process. A line longer than
// 1,024 bytes is cut there and logged immediately. Blank lines are left out. The writer
// holds at most one line of that size.
//
// Close logs the last line if it has no newline. The writer is safe for concurrent use,
// but if several children write at the same time, their lines may mix.
func Stderr(logger *zap.Logger) io.WriteCloser { return &stderr{logger: anonymous(logger)} }

type stderr struct {
	logger *zap.Logger

	mu   sync.Mutex
	line []byte // the present line so far, at most lines.MaxText bytes and one
	rest bool   // the present line was logged, and its rest is dropped
}

func (s *stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, behind, ended := bytes.Cut(rest, []byte{'\n'})
		s.add(part)
		if ended {
			s.end()
		}
		rest = behind
	}
	return len(p), nil
}

func (s *stderr) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	return nil
}

// add appends a part of a line, and logs the line when it is too long.
func (s *stderr) add(part []byte) {
	if s.rest {
		return
	}
	s.line = append(s.line, part[:min(len(part), lines.MaxText+1-len(s.line))]...)
	if len(s.line) > lines.MaxText {
		s.log()
		s.rest = true
	}
}

func (s *stderr) end() {
	if !s.rest {
		s.log()
	}
	s.rest = false
}

func (s *stderr) log() {
	if len(s.line) > lines.MaxText { // the line continues, even if this part ends with blanks
		s.logger.Info("stderr", zap.String("line", lines.Cut(string(s.line))))
	} else if text := bytes.TrimRight(s.line, " \t\r"); len(text) > 0 {
		s.logger.Info("stderr", zap.String("line", lines.Cut(string(text))))
	}
	s.line = s.line[:0]
}
