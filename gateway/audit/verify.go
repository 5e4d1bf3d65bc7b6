package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// longestLine is the size of the longest line of a trail, in bytes.
const longestLine = 64 << 10

// lines are the records of one file, each of which is checked by itself.
type lines struct {
	path string
	key  []byte
	in   *bufio.Reader
	at   int // line, from 1

	record Record
	text   string
	torn   []byte // what follows the last line break
	err    error
}

func newLines(path string, key []byte, file io.Reader) *lines {
	return &lines{path: path, key: key, in: bufio.NewReaderSize(file, longestLine)}
}

// next reads a record. It reports false at the end, and at the first record that is wrong.
func (l *lines) next() bool {
	text, err := l.in.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF):
		l.torn = bytes.Clone(text)
		return false
	case errors.Is(err, bufio.ErrBufferFull):
		err = fmt.Errorf("the line has more than %d bytes", longestLine)
	}
	l.at++
	if err == nil {
		l.text = string(text[:len(text)-1])
		var r Record
		if r, err = unseal(l.key, l.text); err == nil {
			l.record = r
			return true
		}
	}
	l.err = &BrokenError{l.path, l.at, l.record.Number, err.Error()}
	return false
}

// A Summary says what was verified.
type Summary struct {
	First, Last uint64 // numbers of records
	Files       int
	Lost        uint64 // records that the trail says were dropped
	Unclean     int    // processes that were killed: up to 4,096 records of each may be missing, unless Sync was set
}

// Verify reads a trail, with the old files beside it, also while it is written. It fails with a *BrokenError if a record was changed, added, left out or moved, or if the end is
// missing. Old files that were removed from the beginning are no failure: First says where the trail begins. If no old file is left, it begins with record 1.
func Verify(path string, key []byte) (s Summary, err error) {
	const looks = 5 // what is wrong counts if nobody has written meanwhile, or each time
	for range looks {
		before := stateOf(path)
		if s, err = verify(path, key); err == nil || stateOf(path) == before {
			break
		}
	}
	return s, err
}

func verify(path string, key []byte) (s Summary, err error) {
	h, unknown := readHead(path, key) // before the records: while they are read, others are written
	full, newest, err := OpenFiles(path)
	if err != nil {
		return s, err
	}
	defer newest.Close()
	v := verifying{key: key, begins: 1}
	for _, name := range full {
		if err := v.old(name); err != nil {
			return v.Summary, err
		}
	}
	if err := v.file(newest, path); err != nil {
		return v.Summary, err
	}
	return v.Summary, v.end(path, h, unknown)
}

// verifying is a chain as far as it was read.
type verifying struct {
	Summary
	key    []byte
	hash   string
	lines  int    // of the newest file that are right
	begins uint64 // the number of the first record of the first file
	runs   bool   // a process has started, and has not said that it stopped
}

// old reads a file that is full. If it was removed meanwhile, as too old, the trail begins after it.
func (v *verifying) old(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		*v = verifying{key: v.key}
		return nil
	} else if err != nil {
		return err
	}
	defer file.Close()
	if v.Files == 0 {
		if v.begins, err = strconv.ParseUint(path[strings.LastIndexByte(path, '.')+1:], 10, 64); err != nil {
			return err
		}
	}
	return v.file(file, path)
}

func (v *verifying) file(file io.Reader, path string) error {
	v.Files++
	v.lines = 0
	all := newLines(path, v.key, file)
	for all.next() {
		if why := v.follows(all.record); why != "" {
			return &BrokenError{path, all.at, v.Last, why}
		}
		v.Last, v.hash, v.lines = all.record.Number, hashOf([]byte(all.text)), all.at
		v.count(all.record)
	}
	if len(all.torn) > 0 && all.err == nil {
		return &BrokenError{path, all.at + 1, v.Last, "the line is not complete"}
	}
	return all.err
}

// end compares the newest record with what was noted of it, unless that is unknown: a chain whose end is missing is right up to there.
func (v *verifying) end(path string, noted head, unknown error) error {
	switch {
	case unknown != nil:
		return &BrokenError{path + headEnd, 1, v.Last, "the end may be missing; whoever copies a trail copies this file, too: " + unknown.Error()}
	case noted.Number > v.Last || noted.Number == v.Last && noted.Hash != v.hash:
		return &BrokenError{path, v.lines + 1, v.Last, fmt.Sprintf("the newest record was %d: the end is missing", noted.Number)}
	default:
		return nil
	}
}

// follows says why a record cannot be the next one of the chain.
func (v *verifying) follows(r Record) string {
	switch {
	case r.Event == EventCut:
		return fmt.Sprintf("records are missing, as the trail says itself: %d %s", r.Count, r.Reason)
	case v.First == 0 && r.Number == 1 && r.Previous != "":
		return "the first record follows another one"
	case v.First == 0 && r.Number != v.begins && r.Event == EventMoved:
		return fmt.Sprintf("the %d records before %d were moved away: put their file back, named as this trail with .%012d at the end", r.Count, r.Number, r.Number-r.Count)
	case v.First == 0 && r.Number != v.begins:
		return fmt.Sprintf("the records before %d are missing", r.Number)
	case v.First == 0:
		v.First = r.Number
		return ""
	case r.Number != v.Last+1:
		return fmt.Sprintf("record %d follows it", r.Number)
	case r.Previous != v.hash:
		return "the next one follows another record"
	}
	return ""
}

func (v *verifying) count(r Record) {
	switch r.Event {
	case EventStarted:
		if v.runs {
			v.Unclean++
		}
		v.runs = true
	case EventStopped:
		v.runs = false
	case EventLost:
		v.Lost += r.Count
	}
}
