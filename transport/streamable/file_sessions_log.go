package streamable

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

// A sessionLog is the file of a FileSessions. One goroutine at a time changes it: the one
// that opens it, and then the writer. Others may read.
//
// The process may be killed at any moment. So a frame that is not whole can only be the last one, which
// scan cuts off; a record is replaced by appending the new one before the old one is marked dead; and a
// compaction writes another file, and renames it when it is complete.
type sessionLog struct {
	path     string
	maxBytes int64 // how long the frames that are live may be together

	reading sync.RWMutex // held while the file is read, and while it is replaced
	file    *os.File     // nil after the file was lost

	end     int64 // where the next frame begins
	live    int64 // the length of all frames that are live
	damaged int   // how many places were damaged when the file was opened
	cut     int64 // how many bytes were cut off the end then
	retry   int64 // no compaction before the file is so long, since the last one failed
}

// A place is where a frame is in the file. The Save it comes from was at atMilli.
type place struct {
	offset  int64
	atMilli int64
	size    int32
}

const (
	compactAbove = 1 << 20 // a shorter file is not compacted
	scanBuffer   = 1 << 20 // must be longer than a frame
)

// mostBytes is how long the file may become. More than half of it is live, or it is compacted.
func (l *sessionLog) mostBytes() int64 { return 2*l.maxBytes + 2*compactAbove }

// openSessionLog opens the file of a folder that nobody else uses, and returns which frames
// are live.
func openSessionLog(dir string, maxBytes int64) (*sessionLog, map[sessionName]place, error) {
	l := &sessionLog{path: filepath.Join(dir, "sessions"), maxBytes: maxBytes}
	if err := os.Remove(l.newPath()); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a compaction that was killed
		return nil, nil, &SessionFileError{l.newPath(), err}
	}
	file, err := private.Open(l.path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, nil, &SessionFileError{l.path, err}
	}
	l.file = file
	stored, err := l.load()
	if err != nil {
		file.Close()
		return nil, nil, &SessionFileError{l.path, err}
	}
	return l, stored, nil
}

func (l *sessionLog) newPath() string { return l.path + ".new" }

// load reads the file. It refuses one that it has not written, because somebody may need it.
func (l *sessionLog) load() (map[sessionName]place, error) {
	if _, err := private.Restrict(l.file); err != nil {
		return nil, err
	}
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > l.mostBytes() {
		return nil, fmt.Errorf("it has %d bytes, more than MaxBytes permits: remove it, or raise MaxBytes", info.Size())
	}
	head := make([]byte, min(info.Size(), int64(len(sessionsMagic))))
	if _, err := io.ReadFull(l.file, head); err != nil {
		return nil, err
	}
	if string(head) != sessionsMagic[:len(head)] {
		return nil, errors.New("it is no file of sessions, or one of another version: remove it")
	}
	if len(head) < len(sessionsMagic) { // the process was killed when it created the file
		_, err := l.file.WriteAt([]byte(sessionsMagic), 0)
		l.end = int64(len(sessionsMagic))
		return map[sessionName]place{}, err
	}
	return l.scan(info.Size())
}

// scan reads all frames after the magic. It cuts off an end that is damaged: there the last
// process was killed while it wrote.
func (l *sessionLog) scan(size int64) (map[sessionName]place, error) {
	s := newFrameScan(l.file, int64(len(sessionsMagic)), size)
	stored, now := make(map[sessionName]place), time.Now().UnixMilli()
	var replaced []place // frames whose process was killed before it marked them
	for {
		f, offset, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !f.live {
			continue
		}
		if older, twice := stored[f.name]; twice {
			replaced = append(replaced, older)
			l.live -= int64(older.size)
		}
		stored[f.name] = place{offset, min(f.at.UnixMilli(), now), int32(f.size())} // the clock may have been set back
		l.live += int64(f.size())
	}
	l.end, l.damaged, l.cut = s.end, s.damaged, size-s.end
	for _, p := range replaced {
		if err := l.markDead(p); err != nil {
			return nil, err
		}
	}
	if l.cut > 0 {
		return stored, l.file.Truncate(l.end)
	}
	return stored, nil
}

// A frameScan reads the frames of a file. After damage it goes on with the next whole frame.
// The budget bounds that: in a file of nothing but marks, each could be the beginning of a long frame.
type frameScan struct {
	r       *bufio.Reader
	offset  int64 // where the reader is
	end     int64 // where the last whole frame ended
	damaged int   // how many damaged places were passed
	budget  int64 // how many more bytes may be checked in vain
}

func newFrameScan(file io.ReaderAt, from, size int64) *frameScan {
	return &frameScan{
		r: bufio.NewReaderSize(io.NewSectionReader(file, from, size-from), scanBuffer), offset: from, end: from, budget: 4*size + 64<<20,
	}
}

// next returns the next whole frame and where it begins. After the last one its error is
// io.EOF, even if more bytes follow. The frame is valid until the next call.
func (s *frameScan) next() (sessionFrame, int64, error) {
	for s.budget >= 0 {
		b, err := s.r.Peek(frameHead + maxFrameBody)
		if len(b) == 0 || err != nil && !errors.Is(err, io.EOF) {
			return sessionFrame{}, 0, err
		}
		f, checked, damage := frameAt(b)
		skip := f.size()
		if damage != nil {
			s.budget -= int64(checked)
			skip = nextMark(b)
		}
		at := s.offset
		s.offset += int64(skip)
		_, _ = s.r.Discard(skip) // it was peeked
		if damage == nil {
			if at > s.end {
				s.damaged++
			}
			s.end = s.offset
			return f, at, nil
		}
	}
	return sessionFrame{}, 0, io.EOF // so much damage is not worth more time
}

// errTooMany says that no more may be stored.
var errTooMany = errors.New("the sessions need more than MaxBytes")

// append appends a frame that will replace one of a size.
// After an error the next frame is written to the same place.
func (l *sessionLog) append(frame []byte, replaced int32) (offset int64, err error) {
	switch grown := int64(len(frame)); {
	case l.file == nil:
		return 0, fs.ErrClosed
	case l.live-int64(replaced)+grown > l.maxBytes || l.end+grown > l.mostBytes():
		return 0, errTooMany
	}
	if _, err := l.file.WriteAt(frame, l.end); err != nil {
		return 0, errors.Join(err, l.file.Truncate(l.end)) // a part of it may be there
	}
	offset = l.end
	l.end += int64(len(frame))
	l.live += int64(len(frame))
	return offset, nil
}

// kill makes a frame dead.
// If that fails, its session could go on with an old record, so the caller clears the file.
func (l *sessionLog) kill(p place) error {
	l.live -= int64(p.size)
	return l.markDead(p)
}

func (l *sessionLog) markDead(p place) error {
	if l.file == nil {
		return fs.ErrClosed
	}
	_, err := l.file.WriteAt([]byte{frameDead}, p.offset+int64(frameState)) // needs no room on the disk
	return err
}

// clear deletes all frames.
// No record is better than one that is not true any more.
func (l *sessionLog) clear() error {
	l.end, l.live = int64(len(sessionsMagic)), 0
	if l.file == nil {
		return os.Remove(l.path)
	}
	return l.file.Truncate(l.end)
}

// read reads the frame at a place.
func (l *sessionLog) read(p place) (sessionFrame, error) {
	b := make([]byte, p.size)
	if l.file == nil {
		return sessionFrame{}, fs.ErrClosed
	}
	if _, err := l.file.ReadAt(b, p.offset); err != nil {
		return sessionFrame{}, err
	}
	f, _, err := frameAt(b)
	return f, err
}

// wantsCompaction reports whether the file should be compacted.
// Unless there is damage, that copies fewer bytes than have become dead since the last time, so it costs
// little however long the process runs.
func (l *sessionLog) wantsCompaction() bool {
	return (l.damaged > 0 || l.end > compactAbove && l.end-l.live > l.live) && l.end >= l.retry
}

// compact replaces the file by one with the frames that are stored. It calls moved with their
// new places before anybody can read the new file. After an error the file is as it was, unless
// even that file cannot be opened again.
func (l *sessionLog) compact(stored map[sessionName]place, moved func(map[sessionName]place)) (err error) {
	defer func() {
		// A disk that is full is not tried again with each record.
		if l.retry = 0; err != nil {
			l.retry = l.end + compactAbove
		}
	}()
	places, err := l.copyTo(l.newPath(), stored)
	if err != nil {
		_ = os.Remove(l.newPath()) // there may be none
		return err
	}
	// Readers wait only while the files are exchanged, and not while they are copied.
	l.reading.Lock()
	defer l.reading.Unlock()
	closed := l.file.Close() // before Rename, since Windows does not rename onto an open file
	renamed := os.Rename(l.newPath(), l.path)
	l.file, err = private.Open(l.path, os.O_RDWR)
	if renamed != nil || err != nil {
		return errors.Join(closed, renamed, err)
	}
	private.SyncFolder(filepath.Dir(l.path))
	l.end, l.damaged = int64(len(sessionsMagic))+l.live, 0
	moved(places)
	return nil
}

// copyTo writes the frames to a new file, in their order.
// Only the writer calls it, so neither they nor the places change meanwhile.
func (l *sessionLog) copyTo(path string, stored map[sessionName]place) (moved map[sessionName]place, err error) {
	if l.file == nil {
		return nil, fs.ErrClosed
	}
	file, err := private.Open(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriter(file)
	_, _ = w.WriteString(sessionsMagic) // Flush returns its error
	moved, end := make(map[sessionName]place, len(stored)), int64(len(sessionsMagic))
	names := slices.SortedFunc(maps.Keys(stored), func(a, b sessionName) int { return cmp.Compare(stored[a].offset, stored[b].offset) })
	for _, name := range names {
		p := stored[name]
		b := make([]byte, p.size)
		if _, err := l.file.ReadAt(b, p.offset); err != nil {
			return nil, err
		}
		_, _ = w.Write(b)
		p.offset = end
		moved[name] = p
		end += int64(p.size)
	}
	return moved, errors.Join(w.Flush(), file.Sync())
}

// close closes the file, with everything on the disk.
// A read that is under way ends before.
func (l *sessionLog) close() error {
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}
