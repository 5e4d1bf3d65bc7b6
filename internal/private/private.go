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
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = checkOwn(info)
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

// checkOwn fails unless it is a file of the user.
func checkOwn(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is no file")
	case isForeign(info):
		return errors.New("it belongs to another user")
	default:
		return nil
	}
}
