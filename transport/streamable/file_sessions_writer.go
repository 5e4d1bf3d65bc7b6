package streamable

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

// write is the goroutine that changes the file. After Close it ends when nothing is pending.
func (s *FileSessions) write() {
	defer close(s.done)
	sweep := time.NewTicker(max(s.o.MaxAge/8, time.Millisecond))
	defer sweep.Stop()
	for {
		s.writePending()
		select {
		case <-s.wake:
		case <-sweep.C:
			s.sweep()
		// closed is set, so nothing is added any more.
		case <-s.closing:
			s.writePending()
			return
		}
	}
}

// writePending writes until nothing is pending. It cannot fall far behind: Saves that come faster than
// the disk replace each other.
func (s *FileSessions) writePending() {
	for name, p := s.nextPending(); p != nil; name, p = s.nextPending() {
		s.settle(name, p)
		s.compact()
	}
}

// nextPending returns something that is pending, or nil.
func (s *FileSessions) nextPending() (sessionName, *pendingRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.pending {
		return name, p
	}
	return sessionName{}, nil
}

// settle writes what is pending for a session. The older record is deleted also if the new one
// cannot be stored, because it is not true any more. It is deleted last, so that a process that
// is killed meanwhile leaves one of them.
func (s *FileSessions) settle(name sessionName, p *pendingRecord) {
	s.mu.Lock()
	older, replaces := s.stored[name]
	s.mu.Unlock()
	var at place
	var err error
	if p.record != nil {
		at, err = s.append(name, p, older.size)
	}
	kept, cleared := p.record != nil && err == nil, false
	if replaces {
		if killed := s.file.kill(older); killed != nil {
			err = errors.Join(err, killed, s.file.clear())
			kept, cleared = false, true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stored, name)
	switch {
	case cleared:
		clear(s.stored)
	case kept:
		s.stored[name] = at
	}
	// Otherwise another one came meanwhile, which is written next.
	if s.pending[name] == p {
		delete(s.pending, name)
	}
	if p.record != nil || err != nil {
		s.note(err)
	}
}

// note notes whether something could be stored, and logs when that changes. The caller holds
// the mutex.
func (s *FileSessions) note(err error) {
	switch {
	case err != nil && s.err == nil:
		s.o.Log.Warn("streamable: sessions cannot be stored, and end with this process", "path", s.file.path, "error", err)
	case err == nil && s.err != nil:
		s.o.Log.Info("streamable: sessions are stored again", "path", s.file.path)
	}
	if s.err = err; err != nil {
		s.failed++
	}
}

// append appends a record to the file, which will replace one of a size.
func (s *FileSessions) append(name sessionName, p *pendingRecord, replaced int32) (place, error) {
	about := aboutOf(name, p.at)
	sealed, err := s.seal.Seal(encodeSessionRecord(*p.record), about)
	if err != nil {
		return place{}, err
	}
	frame, fits := frameOf(about, sealed)
	if !fits {
		return place{}, errors.New("a record is longer than 64 KiB")
	}
	offset, err := s.file.append(frame, replaced)
	return place{offset, p.at.UnixMilli(), int32(len(frame))}, err
}

// sweep deletes records that have expired.
// A Save that comes meanwhile stays pending, and is written after that.
func (s *FileSessions) sweep() {
	s.mu.Lock()
	var expired []sessionName
	for name, p := range s.stored {
		if s.expired(p) {
			expired = append(expired, name)
		}
	}
	s.mu.Unlock()
	for _, name := range expired {
		s.settle(name, &pendingRecord{})
	}
	s.compact()
}

// compact makes the file shorter if much of it is not needed any more.
func (s *FileSessions) compact() {
	if !s.file.wantsCompaction() {
		return
	}
	err := s.file.compact(s.stored, func(moved map[sessionName]place) { // only this goroutine changes s.stored
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stored = moved
	})
	if err != nil {
		s.o.Log.Warn("streamable: a file of sessions cannot be made shorter", "path", s.file.path, "error", err)
	}
}

// Close writes what is pending, and ends the use of the folder. It waits for the disk. The
// error says why the last record could not be stored. After Close, Save, Free and Forget do
// nothing, and Take fails.
func (s *FileSessions) Close() error {
	s.end.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.closing)
		<-s.done
		err := errors.Join(s.file.close(), private.Unlock(s.lock))
		s.mu.Lock()
		defer s.mu.Unlock()
		if err = errors.Join(s.err, err); err != nil {
			s.err = &SessionFileError{s.file.path, err}
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
