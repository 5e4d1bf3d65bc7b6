//go:build unix

package auth

import (
	"errors"
	"fmt"
	"io/fs"
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
	if err := checkOwn(info); err != nil {
		return false, err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return false, nil
	}
	return true, file.Chmod(0o600)
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

func isForeign(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) != os.Geteuid()
}

// checkPrivate fails if others can write to a folder. They could then put links or files of
// their own in the place of its files.
func checkPrivate(dir string, info fs.FileInfo) error {
	switch {
	case !info.IsDir():
		return errors.New("it is no folder")
	case isForeign(info):
		return errors.New("the folder of logins belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to the folder of logins (mode %#o): run chmod 700 %s", info.Mode().Perm(), dir)
	default:
		return nil
	}
}

// openLock opens the lock of a file, or creates it. It does not follow symbolic links.
func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link: remove it", path)
	}
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

// tryLock takes the lock of a file, if it is free.
func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
