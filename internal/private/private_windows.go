package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func open(path string, flag int) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no file: remove it", path)
	}
	return os.OpenFile(path, flag, 0o600)
}

// isForeign reports false: only the user can read the folder of a user's configuration.
func isForeign(fs.FileInfo) bool { return false }

// checkTrusted accepts every file, for the same reason as isForeign.
func checkTrusted(fs.FileInfo) error { return nil }

func checkFolder(_ string, info fs.FileInfo) error {
	if !info.IsDir() {
		return errors.New("it is no folder")
	}
	return nil
}

// Restrict does nothing, for the same reason as isForeign.
func Restrict(*os.File) (changed bool, err error) { return false, nil }

// tryLock reports whether this process has the lock now.
func tryLock(file *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock of a file back and closes the file.
func Unlock(file *os.File) error {
	err := windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, new(windows.Overlapped))
	return errors.Join(err, file.Close())
}

// SyncFolder does nothing: Windows does not offer it.
func SyncFolder(string) {}
