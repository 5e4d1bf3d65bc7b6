package zaplog

import (
	"bytes"
	"io"
	"sync"

	"go.uber.org/zap"
)

// Stderr returns a writer for the standard error of a child process, such as
// stdio.Command.Stderr: it writes a line to the logger, at info, for each line
// that comes. What is longer than 1,024 bytes is logged cut, as soon as that is
// known, and no more than that is held. Lines without a text are left out.
//
// Close logs the line that has no end yet. The writer is safe for concurrent
// use; children that overlap share lines.
func Stderr(logger *zap.Logger) io.WriteCloser { return &stderr{logger: logger} }

type stderr struct {
	logger *zap.Logger

	mu   sync.Mutex
	line []byte // what is known of the present line, at most maxText and a byte
	rest bool   // its beginning was logged: the rest is dropped
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

// add takes a part of a line, and logs it once it is too long.
func (s *stderr) add(part []byte) {
	if s.rest {
		return
	}
	s.line = append(s.line, part[:min(len(part), maxText+1-len(s.line))]...)
	if len(s.line) > maxText {
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
	if len(s.line) > maxText { // there is more to it, whatever its end looks like
		s.logger.Info("stderr", zap.String("line", cut(string(s.line))))
	} else if text := bytes.TrimRight(s.line, " \t\r"); len(text) > 0 {
		s.logger.Info("stderr", zap.String("line", cut(string(text))))
	}
	s.line = s.line[:0]
}
