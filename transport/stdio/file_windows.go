package stdio

import "os"

// A file is a file that a link uses. Its reads and writes cannot be interrupted.
type file struct {
	*os.File
	standard bool // it is a standard stream of the process
}

func ownFile(original *os.File) (*file, error) {
	return &file{original, isStandard(original)}, nil
}

// Close closes the file unless it is a standard stream of the process.
func (f *file) Close() error {
	if f.standard {
		return nil
	}
	return f.File.Close()
}
