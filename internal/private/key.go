package private

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Key returns the key of size bytes that a file of this user has in hexadecimal digits. If there is no file, it makes one. Of several processes that
// do so at once, all get the same key: what one of them has sealed with its own would be lost.
func Key(path string, size int) ([]byte, error) {
	key, err := readKey(path, size)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	if err := linkKey(path, size); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return readKey(path, size) // another process may have been first
}

func readKey(path string, size int) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := Restrict(file); err != nil {
		return nil, err
	}
	return ReadKey(path, file, size)
}

// ReadKey reads what MakeKey writes, and what people do: spaces and line breaks around a key mean nothing. It reads no more than a key of size bytes
// can have. An error says where it was looked for.
func ReadKey(where string, from io.Reader, size int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(4*size)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != size {
		return nil, fmt.Errorf("%s has no key of %d hexadecimal digits", where, 2*size)
	}
	return key, nil
}

// linkKey makes a key where there is none yet. Nobody sees half of it.
func linkKey(path string, size int) error {
	// The file gets its name when it is complete: another process may read it at any time, and a process
	// that is killed here leaves no key that is cut.
	temporary := path + "." + rand.Text()
	if err := MakeKey(temporary, size); err != nil {
		return err
	}
	defer os.Remove(temporary)
	return os.Link(temporary, path) // fails if there is one
}

// MakeKey writes a new key into a new file, with mode 0600. It fails if there is a file: what was sealed with the key in it could not be
// opened any more.
func MakeKey(path string, size int) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	key := make([]byte, size)
	rand.Read(key) // rand.Read never fails
	return fill(file, []byte(hex.EncodeToString(key)+"\n"))
}
