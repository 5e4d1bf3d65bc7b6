package server

import (
	"io/fs"
	"sync"
	"time"
)

const (
	// mostNames bounds how many names of directories a folder remembers.
	mostNames = 100_000

	// settling is how long the modification time of a directory must have stayed before
	// what is read counts for as long as it stays. Some systems count it in steps of 2 s,
	// and what changes within one step does not show.
	settling = 2 * time.Second
)

// directories are what a folder has read of directories. A directory is read again when
// its modification time has changed, and never side by side with another. The zero value
// is ready.
type directories struct {
	mu    sync.Mutex
	known map[string]*directory
	names int // in all of them, and one for each
}

type directory struct {
	changed time.Time              // its modification time
	since   time.Time              // when that was seen first, by the clock here
	kinds   map[string]fs.FileMode // by name; nil: it is read again
}

// kindOf returns the type of what a directory lists under a name, or ModeIrregular.
func (d *directories) kindOf(files fs.FS, folder, name string) fs.FileMode {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := fs.Stat(files, folder)
	if err != nil {
		return fs.ModeIrregular
	}
	here := d.known[folder]
	if here == nil || !here.changed.Equal(info.ModTime()) {
		here = d.begin(folder, info.ModTime())
	}
	if here.kinds != nil {
		if kind, ok := here.kinds[name]; ok {
			return kind
		}
		return fs.ModeIrregular
	}
	begun := time.Now()
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return fs.ModeIrregular
	}
	if !here.changed.IsZero() && begun.Sub(here.since) >= settling {
		d.keep(here, entries)
	}
	for _, entry := range entries {
		if entry.Name() == name {
			return entry.Type()
		}
	}
	return fs.ModeIrregular
}

// begin forgets what was known of a directory, if anything.
func (d *directories) begin(folder string, changed time.Time) *directory {
	if d.names >= mostNames || d.known == nil {
		d.known, d.names = make(map[string]*directory), 0
	}
	if before := d.known[folder]; before != nil {
		d.names -= 1 + len(before.kinds)
	}
	d.names++
	d.known[folder] = &directory{changed: changed, since: time.Now()}
	return d.known[folder]
}

// keep remembers what is in a directory, unless that is too much.
func (d *directories) keep(here *directory, entries []fs.DirEntry) {
	if len(entries) > mostNames-d.names {
		return
	}
	here.kinds = make(map[string]fs.FileMode, len(entries))
	for _, entry := range entries {
		here.kinds[entry.Name()] = entry.Type()
	}
	d.names += len(entries)
}
