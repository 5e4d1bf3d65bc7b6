package folder

import (
	"io/fs"
	"sync"
	"time"
)

const (
	// mostNames limits how many names of directory entries a folder remembers.
	mostNames = 100_000

	// settling is how old the modification time of a directory must be before a listing
	// stays valid. Some file systems store it in steps of 2 s, and do not show a second
	// change within one step.
	settling = 2 * time.Second
)

// directories caches listings of directories. A directory is listed again when its
// modification time has changed, and by one caller at a time. The zero value is ready to
// use.
type directories struct {
	mu    sync.Mutex
	known map[string]*directory
	names int // how many names all listings have together, plus one for each listing
}

type directory struct {
	changed time.Time              // the modification time of the directory
	since   time.Time              // when this process first saw that time
	kinds   map[string]fs.FileMode // the types of the entries, by name; nil: the directory must be listed again
}

// kindOf returns the type of the directory entry with a name, or ModeIrregular if there
// is none.
//
// It holds the mutex while the file system lists: others that want the same directory wait for
// that, and do not list it as well.
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
	if here.kinds == nil {
		return d.list(files, folder, here, name)
	}
	if kind, ok := here.kinds[name]; ok {
		return kind
	}
	return fs.ModeIrregular
}

// list lists a directory and looks for a name in it. It keeps the listing only if the directory was
// not modified lately: a second change within one step of the clock would not show. The caller
// holds the mutex.
func (d *directories) list(files fs.FS, folder string, here *directory, name string) fs.FileMode {
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

// begin removes an old listing of a directory, if there is one.
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

// keep stores a listing, unless it is too large.
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
