package lint

import (
	"bytes"
	"errors"
	"fmt"
	_ "html/template" // want depguard
	"io/ioutil"       // want depguard staticcheck
	"log"             // want depguard
	"os"
	. "strings" // want revive staticcheck
	"sync"
	"sync/atomic"
	_ "text/template" // want depguard
	"time"
)

var (
	errGone = errors.New("gone")
	table   = [...]int{1, 2}
	pool    sync.Pool
	newest  int // want gochecknoglobals
)

var mu sync.Mutex // want gochecknoglobals

var count atomic.Int64 // want gochecknoglobals

type thing struct{}

func (thing) init() {}

func init() { // want gochecknoinits
	thing{}.init()
}

func unused() {} // want unused

// Use breaks the rules for statements.
func Use(buffer *bytes.Buffer, at, now time.Time) error {
	os.Stdout = os.Stderr   // want reassign
	<-time.After(time.Hour) // want forbidigo
	time.Sleep(time.Hour)   // want forbidigo
	_ = at.After(now)       // allowed
	os.Chdir(ToUpper("/"))  // want errcheck
	fmt.Fprintln(buffer)    // allowed
	_ = int(table[0])       // want unconvert
	_ = "recieve"           // want misspell
	mu.Lock()
	defer mu.Unlock()
	count.Add(int64(newest))
	log.Printf("%d", "one")               // want govet
	_, err := ioutil.ReadAll(buffer)      // want govet
	if _, ok := err.(*os.PathError); ok { // want errorlint
		return errGone
	}
	pool.Put(nil)                         //nolint // want nolintlint
	return fmt.Errorf("reading: %v", err) // want errorlint
}
