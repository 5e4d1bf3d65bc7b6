package private

import (
	"errors"
	"os"
	"path/filepath"
)

// Unfinished is the pattern of the names that files have in their folder while Replace writes them. A writer that is killed
// leaves one.
const Unfinished = ".new-*"

// Replace replaces a whole file, or creates it, with mode 0600: who reads it sees the old text or the new one, also after a loss of power.
// If it fails, the file is as it was.
func Replace(path string, text []byte) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, Unfinished) // CreateTemp uses mode 0600
	if err != nil {
		return err
	}
	if err = fill(file, text); err == nil {
		if err = os.Rename(file.Name(), path); err == nil {
			SyncFolder(dir)
			return nil
		}
	}
	return errors.Join(err, os.Remove(file.Name()))
}

// fill writes a file and closes it.
func fill(file *os.File, text []byte) error {
	_, err := file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
