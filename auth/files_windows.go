package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func openPrivate(path string) (*os.File, error) { return os.Open(path) }

// makePrivate does nothing: only the user can read the folder of a user's configuration.
func makePrivate(*os.File) (repaired bool, err error) { return false, nil }

// checkPrivate does nothing, for the same reason.
func checkPrivate(string, fs.FileInfo) error { return nil }

// openLock opens the lock of a file, or creates it. It refuses a symbolic link.
func openLock(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no file: remove it", path)
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// tryLock takes the lock of a file, if it is free.
func tryLock(file *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
