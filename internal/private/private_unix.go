//go:build unix

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func open(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link: remove it", path)
	}
	return file, err
}

func isForeign(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) != os.Geteuid()
}

// checkTrusted fails if somebody can change the file who is neither this user nor root, who can change whatever this user can.
func checkTrusted(info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to it (mode %#o): run chmod go-w", info.Mode().Perm())
	default:
		return nil
	}
}

func checkFolder(dir string, info fs.FileInfo) error {
	switch {
	case !info.IsDir():
		return errors.New("it is no folder")
	case isForeign(info):
		return errors.New("the folder belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to the folder (mode %#o): run chmod 700 %s", info.Mode().Perm(), dir)
	default:
		return nil
	}
}

// Restrict removes the permissions of other users, and reports whether they had any.
func Restrict(file *os.File) (changed bool, err error) {
	info, err := file.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return false, err
	}
	return true, file.Chmod(0o600)
}

// tryLock reports whether this process has the lock now.
func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock of a file back and closes the file. To close it is not enough: a child
// that this process is starting has a copy of it until its exec, and would keep the lock.
func Unlock(file *os.File) error {
	return errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_UN), file.Close())
}

// SyncFolder makes renamed files of a folder survive a loss of power, if the system supports
// that. A failure does not damage what is saved, so it is not reported.
func SyncFolder(dir string) {
	if folder, err := os.Open(dir); err == nil {
		_ = folder.Sync() // not every file system supports it
		_ = folder.Close()
	}
}
