package stdio

import "os"

// A file is a link's use of a file. Its reads and writes cannot be
// interrupted.
type file struct {
	*os.File
	standard bool // the file is the process's own
}

func ownFile(original *os.File) (*file, error) {
	return &file{original, isStandard(original)}, nil
}

// Close closes the file unless it is the process's own standard stream.
func (f *file) Close() error {
	if f.standard {
		return nil
	}
	return f.File.Close()
}
