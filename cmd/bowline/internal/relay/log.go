package relay

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/internal/private"
)

const (
	mostLog  = 1 << 20 // bytes, of the log of a gateway in the background: then it begins again
	mostSaid = 4 << 10 // bytes of it that an error looks at
)

// openLog opens the log, and returns where what is written now begins.
func openLog(path string) (log *os.File, began int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, err
	}
	flags := os.O_CREATE | os.O_RDWR | os.O_APPEND
	if info, err := os.Lstat(path); err == nil && info.Size() > mostLog {
		flags |= os.O_TRUNC // and not Truncate, for which Windows wants another right than to append
	}
	log, err = private.Open(path, flags)
	if err != nil {
		return nil, 0, err
	}
	info, err := log.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, log.Close())
	}
	return log, info.Size(), nil
}

// written returns what a gateway has written to the log, in one line.
func written(log *os.File, began int64) string {
	text, _ := io.ReadAll(io.NewSectionReader(log, began, mostSaid)) // what can be read has to do
	return strings.Join(strings.Fields(string(text)), " ")
}

// A BoundedLog is the standard error of a gateway in the background. Such a gateway may run for months beside a server that crashes all the time,
// so its log begins again when it is long, and not only with the next gateway.
type BoundedLog struct {
	File *os.File // opened to append

	mu   sync.Mutex
	room int64 // bytes that may be written before the size of the file is looked at again: others write to it, too
}

// Write implements io.Writer. A log that cannot be cut goes on: what is wrong is more important than its length.
func (l *BoundedLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room < int64(len(text)) {
		l.room = l.makeRoom(int64(len(text)))
	}
	l.room -= int64(len(text))
	return l.File.Write(text)
}

// makeRoom returns how many bytes the log has room for. If these are fewer than are wanted, it begins again.
func (l *BoundedLog) makeRoom(wanted int64) int64 {
	info, err := l.File.Stat()
	if err != nil {
		return 0
	}
	if info.Size()+wanted <= mostLog {
		return mostLog - info.Size()
	}
	_ = l.File.Truncate(0)
	return mostLog
}
