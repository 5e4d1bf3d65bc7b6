package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// OpenFiles opens the file of the newest records, which the caller closes, and names the full ones before it, the oldest first. Together they have the whole trail, also while
// it is written: for a moment, when a full file makes room for the next one, none has the path. Then OpenFiles looks again, for a second.
func OpenFiles(path string) (full []string, newest *os.File, err error) {
	const looks, pause = 100, 10 * time.Millisecond
	for range looks {
		full, newest, err = openFiles(path)
		if !errors.Is(err, errReplaced) && (!errors.Is(err, fs.ErrNotExist) || len(full) == 0) {
			break
		}
		_ = wait.Sleep(context.Background(), pause) // it ends by itself
	}
	return full, newest, err
}

// errReplaced is the error of openFiles if the newest file became full meanwhile: then it may be among the others, and the next one is missing.
var errReplaced = errors.New("the file becomes full again and again")

func openFiles(path string) (full []string, newest *os.File, err error) {
	newest, err = os.Open(path)
	full, listed := oldFiles(path)
	if err != nil {
		return full, nil, err
	}
	of, err := newest.Stat()
	at, failed := os.Stat(path)
	switch {
	case errors.Is(failed, fs.ErrNotExist), err == nil && failed == nil && !os.SameFile(of, at):
		err = fmt.Errorf("%s: %w", path, errReplaced)
	default:
		err = errors.Join(err, failed, listed)
	}
	if err != nil {
		return full, nil, errors.Join(err, newest.Close())
	}
	return full, newest, nil
}

// stateOf differs from what it was before if somebody has written to a trail meanwhile.
func stateOf(path string) string {
	old, err := oldFiles(path)
	newest, failed := os.Stat(path)
	if failed != nil {
		return fmt.Sprint(old, err, failed)
	}
	return fmt.Sprint(old, err, newest.Size())
}

// nameOfOld is the name of a file that is full, whose first record has a number.
func nameOfOld(path string, first uint64) string { return fmt.Sprintf("%s.%012d", path, first) }

// oldFiles returns the files that were full, the oldest first. What else is beside a trail, such as a copy of it, has no name of that form.
func oldFiles(path string) (old []string, err error) {
	all, err := os.ReadDir(filepath.Dir(path))
	for _, entry := range all {
		if number, of := strings.CutPrefix(entry.Name(), filepath.Base(path)+"."); of && oldNumber.MatchString(number) {
			old = append(old, path+"."+number)
		}
	}
	return old, err
}

var oldNumber = regexp.MustCompile(`^[0-9]{12}$`)

// forgetOld removes the oldest files beyond those that are to be kept; 0: all are.
func forgetOld(path string, keep int) error {
	old, err := oldFiles(path)
	for i := 0; err == nil && keep > 0 && i < len(old)-keep; i++ {
		err = os.Remove(old[i])
	}
	return err
}
