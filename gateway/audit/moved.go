package audit

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

const (
	lookInterval    = time.Second // between two looks: to look for each record would cost as much as to write it
	foreignInterval = time.Hour   // how often it is said that another file is at the path
)

// A place says whether a path still names the file that was opened there. Somebody may have moved or emptied it, as programs do that rotate logs: records
// in a file that nobody looks at, or behind a hole in it, would be lost.
type place struct {
	file   os.FileInfo // nil: it is not known
	looked time.Time
}

func placeOf(file *os.File) place {
	info, _ := file.Stat()
	return place{file: info}
}

// What has become of a file.
type fate int

const (
	inPlace fate = iota
	emptied
	moved // and nothing is at the path, or an empty file
)

// look returns what has become of the file, of which so many bytes are written. What else lies at the path is to be left alone: then the file counts as in its place.
func (p *place) look(path string, written int64, now time.Time, log *slog.Logger) fate {
	if p.file == nil || now.Sub(p.looked) < lookInterval {
		return inPlace
	}
	p.looked = now
	at, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return moved
	case err != nil:
		log.Error("bowline: the audit trail cannot be looked at", "error", err)
	case os.SameFile(at, p.file) && at.Size() == 0 && written > 0:
		return emptied
	case os.SameFile(at, p.file):
	case at.Size() == 0:
		return moved
	default:
		p.looked = now.Add(foreignInterval)
		log.Error("bowline: another file is where the audit trail was: the trail goes on in its own, which was moved", "path", path)
	}
	return inPlace
}
