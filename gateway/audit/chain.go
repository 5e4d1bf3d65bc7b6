package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

// append writes one record, and reports whether it is in the file.
func (t *Trail) append(r Record) bool {
	r.Version, r.Number, r.Node, r.Previous = Version, t.number+1, t.o.Node, t.last
	r.Time = r.Time.UTC()
	r.bound()
	line, err := t.sealer.seal(r)
	if err != nil {
		t.o.Log.Error("bowline: a record of the audit trail cannot be encoded", "error", err)
		return false
	}
	if !t.insist(line) {
		return false
	}
	t.number, t.last = r.Number, hashOf(line)
	t.recent.add(r)
	t.o.Written(r)
	if t.o.MaxSize > 0 && t.size > t.o.MaxSize {
		t.rotate()
	}
	return true
}

// insist appends a line. With Block it tries until Close: what waits for the record does not go on without it.
func (t *Trail) insist(line []byte) bool {
	for {
		err := t.appendLine(line)
		if err == nil {
			t.broken = false
			return true
		}
		if !t.broken {
			t.o.Log.Error("bowline: the audit trail cannot be written", "error", err)
		}
		if t.broken = true; !t.o.Block || t.isClosing() {
			return false
		}
	}
}

// appendLine appends a line, or nothing: half of it would be taken for a record that was changed.
func (t *Trail) appendLine(line []byte) error {
	if t.size == 0 && t.first == 0 {
		t.first = t.number + 1
	}
	line = append(line, '\n') // in the buffer of the sealer, which has room for it
	n, err := t.file.WriteAt(line, t.size)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, t.file.Truncate(t.size))
		}
		return err
	}
	t.size += int64(n)
	return nil
}

// saveHead notes the newest record, and reports whether that is done.
func (t *Trail) saveHead() bool {
	h := newHead(t.number, t.last, t.o.Key)
	err := h.save(t.path)
	if err != nil && !t.behind {
		t.o.Log.Error("bowline: the end of the audit trail cannot be noted", "error", err)
	}
	t.behind = err != nil
	return err == nil
}

// rotate begins a new file. The chain goes on in it. If another file is at the path, that is not renamed: follow sees to it.
func (t *Trail) rotate() {
	if at, err := os.Stat(t.path); t.place.file != nil && (err != nil || !os.SameFile(at, t.place.file)) {
		return
	}
	next, err := t.makeRoom()
	if err != nil {
		t.o.Log.Error("bowline: the audit trail goes on in the same file", "error", err)
		t.o.MaxSize *= 2
		return
	}
	_ = t.file.Close() // everything is written
	t.use(next)
	if err := forgetOld(t.path, t.o.Keep); err != nil {
		t.o.Log.Error("bowline: an old file of the audit trail stays", "error", err)
	}
}

// makeRoom gives the path to a new file. The full one gets its other name first: without that, nothing must take its place.
func (t *Trail) makeRoom() (*os.File, error) {
	next, err := private.Open(t.path+".new", os.O_CREATE|os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	if err = os.Rename(t.path, nameOfOld(t.path, t.first)); err == nil {
		err = os.Rename(t.path+".new", t.path)
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// use makes another file that of the records to come.
func (t *Trail) use(file *os.File) {
	t.file, t.size, t.first = file, 0, 0
	t.place = placeOf(file)
}

// follow goes on at the path, if the file has gone from there. The next record says so.
func (t *Trail) follow() {
	event, where := Record{Event: EventMoved, Time: time.Now()}, t.place.look(t.path, t.size, time.Now(), t.o.Log)
	if where == inPlace {
		return
	}
	if t.first > 0 {
		event.Count = t.number + 1 - t.first
	}
	if where == moved {
		file, err := private.Open(t.path, os.O_CREATE|os.O_RDWR)
		if err != nil {
			t.o.Log.Error("bowline: the audit trail goes on in the file that was moved", "error", err)
			return
		}
		_ = t.file.Close() // everything is written
		t.use(file)
	}
	t.size, t.first = 0, 0
	t.o.Log.Warn("bowline: somebody has moved or emptied the audit trail, which goes on at its path", "path", t.path, "records", event.Count)
	t.append(event)
}

// open takes the trail for this process, and begins a new part of it.
func (t *Trail) open() (err error) {
	switch t.lock, err = private.Lock(t.path + ".lock"); {
	case errors.Is(err, private.ErrLocked):
		return fmt.Errorf("another process writes to %s: each needs a file of its own, also each node of a cluster", t.path)
	case err != nil:
		return err
	}
	defer func() {
		if err != nil {
			_ = private.Unlock(t.lock)
		}
	}()
	file, err := private.Open(t.path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	t.use(file)
	if err := t.begin(file); err != nil {
		return errors.Join(err, file.Close())
	}
	return nil
}

// begin finds the end of the chain, and adds what has become of it and that a process goes on with it.
func (t *Trail) begin(file *os.File) error {
	events, err := t.resume(file)
	if err != nil {
		return err
	}
	for _, event := range append(events, Record{Event: EventStarted}) {
		event.Time = time.Now()
		if !t.append(event) {
			return errors.New("it cannot be written")
		}
	}
	t.saveHead()
	return nil
}

// resume reads the file to its end, or the one before if a new one was just begun. What is torn is set aside.
func (t *Trail) resume(file *os.File) (events []Record, err error) {
	torn, err := t.readAll(file)
	if err != nil {
		return nil, err
	}
	if len(torn) > 0 {
		if err := t.setAside(torn); err != nil {
			return nil, err
		}
		events = []Record{{Event: EventTorn, Count: uint64(len(torn))}}
	}
	if t.size == 0 {
		if err := t.readNewestOld(); err != nil {
			return nil, err
		}
	}
	h, err := readHead(t.path, t.o.Key)
	switch {
	case err != nil && t.number == 0 && errors.Is(err, fs.ErrNotExist): // the trail begins
	case err != nil: // how many are missing nobody knows
		events = append(events, Record{Event: EventCut, Reason: "the newest record is not known: " + err.Error()})
	case h.Number > t.number:
		events = append(events, Record{Event: EventCut, Count: h.Number - t.number})
		t.number, t.last = h.Number, h.Hash
	}
	return events, nil
}

// setAside moves what a process that was killed has left of a line into a file of its own: it may be wanted, and no record can follow it.
func (t *Trail) setAside(torn []byte) error {
	if err := os.WriteFile(fmt.Sprintf("%s.torn-%d", t.path, t.number+1), torn, 0o600); err != nil {
		return err
	}
	return t.file.Truncate(t.size)
}

func (t *Trail) readAll(file *os.File) (torn []byte, err error) {
	lines := newLines(t.path, t.o.Key, file)
	for lines.next() {
		if t.first == 0 {
			t.first = lines.record.Number
		}
		t.number, t.last, t.size = lines.record.Number, hashOf([]byte(lines.text)), t.size+int64(len(lines.text))+1
		t.recent.add(lines.record)
	}
	return lines.torn, lines.err
}

// readNewestOld finds the end of the chain in the file before: this one has no record yet.
func (t *Trail) readNewestOld() error {
	old, err := oldFiles(t.path)
	if err != nil || len(old) == 0 {
		return err
	}
	file, err := private.Open(old[len(old)-1], os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = t.readAll(file)
	t.size, t.first = 0, 0
	return err
}
