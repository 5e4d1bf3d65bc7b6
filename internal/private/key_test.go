package private

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Those who need a key at the same time get the same one, and nothing else is left in the folder.
//
// Guarantees: G-0044.12
func TestKeysThatAreMadeAtOnce(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "key")
		var keys [8][]byte
		var makers sync.WaitGroup
		for i := range keys {
			makers.Go(func() {
				key, err := Key(path, 32)
				if err != nil {
					t.Error(err)
				}
				keys[i] = key
			})
		}
		makers.Wait()
		for _, key := range keys {
			if len(key) != 32 || !bytes.Equal(key, keys[0]) {
				t.Fatalf("%x and %x", keys[0], key)
			}
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
	}
}
