//go:build unix

package auth

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openPrivate opens a file. It does not follow symbolic links.
func openPrivate(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// makePrivate removes the permissions of other users. It fails if the file does not
// belong to the user.
func makePrivate(file *os.File) (repaired bool, err error) {
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, errors.New("it is no file")
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return false, errors.New("it belongs to another user")
	}
	if info.Mode().Perm()&0o077 == 0 {
		return false, nil
	}
	return true, file.Chmod(0o600)
}

// tryLock takes the lock of a file, if it is free.
func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
