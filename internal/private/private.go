// Package private opens, checks and locks files that belong to one user: secrets that no
// other user may read, in folders where no other user may replace them.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Open opens a file of this user, with flags of package os. With os.O_CREATE it creates the
// file with mode 0600. It fails if the file is a symbolic link, no regular file, or belongs
// to another user, and does not wait for the other end of a pipe.
func Open(path string, flag int) (*os.File, error) {
	file, err := open(path, flag)
	return checked(path, file, err, checkOwn)
}

// Lock opens a file of this user, which it creates if there is none, and takes the file's lock among all processes. It does not wait: ErrLocked
// says that another process, or another caller of this one, has the lock. Unlock gives it back, and so does the end of the process.
func Lock(path string) (*os.File, error) {
	file, err := Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	held, err := tryLock(file)
	if err == nil && !held {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return file, nil
}

// OpenTrusted opens a file to read it whose text need not be secret, but must be that of
// this user or of root: it fails if anybody else can write to the file. A link is followed,
// since secrets that are mounted into a container are links.
func OpenTrusted(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errNoFile) // to open a pipe would wait
	}
	file, err := os.Open(path)
	return checked(path, file, err, checkTrusted)
}

// checked closes a file that was opened if a check refuses it.
func checked(path string, file *os.File, err error, check func(fs.FileInfo) error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := file.Stat() // of what is open: the name may be that of another file by now
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return file, nil
}

// CheckFolder fails if other users can replace what is in a folder: if it belongs to one of
// them, or if they can write to it. It does not fail if there is no folder.
func CheckFolder(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return checkFolder(dir, info)
}

// IsUnchanged compares what changes when somebody writes a file or puts another one in its place. Clocks of file systems are coarse: two changes within
// some milliseconds may look like one.
func IsUnchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// ErrLocked says that somebody else has the lock of a file.
var ErrLocked = errors.New("it is locked")

var errNoFile = errors.New("it is no file")

// checkOwn fails unless it is a file of the user.
func checkOwn(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errNoFile
	case isForeign(info):
		return errors.New("it belongs to another user")
	default:
		return nil
	}
}
