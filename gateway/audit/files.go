package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Files returns the files of a trail, the oldest first.
func Files(path string) ([]string, error) {
	old, err := oldFiles(path)
	return append(old, path), err
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
