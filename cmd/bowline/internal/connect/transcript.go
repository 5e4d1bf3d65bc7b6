package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/transcript"
	"github.com/spf13/cobra"
)

// A record is a transcript that is being written.
type record struct {
	to     io.Writer
	file   *os.File // nil: standard error
	Times  bool
	writer *transcript.Writer
}

// OpenRecord opens the transcript that the flags name, if any. Other users cannot
// read it, because messages contain secrets.
func (f *Flags) OpenRecord(ctx context.Context, stderr io.Writer) (*record, error) {
	switch f.RecordPath {
	case "":
		return nil, nil
	case "-":
		return &record{to: render.Writer(stderr)}, nil
	}
	file, err := process.Await(ctx, func() (*os.File, error) { return openPrivate(f.RecordPath) })
	if err != nil {
		return nil, fmt.Errorf("the transcript: %w", err)
	}
	return &record{to: file, file: file}, nil
}

// openPrivate opens a file for writing. If it is a regular file, it becomes empty, and only its
// owner can read what is written.
func openPrivate(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := restrict(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// restrict empties a regular file that may have existed before, with a mode for other users.
func restrict(file *os.File) error {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Mode().Perm() != 0o600 {
		if err := file.Chmod(0o600); err != nil {
			return fmt.Errorf("other users could read it: %w: name another file", err)
		}
	}
	return file.Truncate(0)
}

// Tap returns a transport that records the frames of t; t itself if r is nil.
func (r *record) Tap(t transport.Transport) transport.Transport {
	if r == nil {
		return t
	}
	r.writer = transcript.NewWriter(r.to, transcript.Options{Times: r.Times})
	return transcript.Tap(t, r.writer.Observe)
}

// Close closes the transcript, and prints a message if it is incomplete.
func (r *record) Close(cmd *cobra.Command) {
	if r == nil {
		return
	}
	err := r.writer.Err()
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	if err != nil {
		cmd.PrintErrln(render.Message("warning: the transcript is not complete: " + err.Error()))
	}
}
