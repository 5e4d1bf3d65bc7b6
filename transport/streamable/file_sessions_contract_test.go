package streamable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// fileSessions returns a process that keeps its sessions in a folder. To kill it, the folder
// is copied, and the next process gets the copy: that is what kill -9 leaves.
func fileSessions(o streamable.FileSessionsOptions) func(t *testing.T) stores.Sessions {
	return func(t *testing.T) stores.Sessions {
		folder := testenv.Dir(t)
		var running *streamable.FileSessions
		return stores.Sessions{
			Nodes: 1,
			Start: func(string) streamable.SessionStore {
				s, err := streamable.OpenFileSessions(folder, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() }) // it may have been killed
				running = s
				return s
			},
			Settle: func(string) { awaitStored(running) },
			Kill: func(string) {
				copied := testenv.Dir(t)
				copyFolder(t, folder, copied)
				if err := running.Close(); err != nil {
					t.Error(err)
				}
				if err := os.RemoveAll(folder); err != nil {
					t.Error(err)
				}
				folder = copied
			},
		}
	}
}

// awaitStored returns when everything that was saved is in the file.
func awaitStored(s *streamable.FileSessions) {
	for s.Report().Pending > 0 {
		runtime.Gosched()
	}
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file.Name()), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Guarantees: G-0080.2, G-0080.5
func TestFileSessionsContract(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	t.Run("own key", func(t *testing.T) {
		t.Parallel()
		stores.SessionStoreContract(t, fileSessions(streamable.FileSessionsOptions{}), proptest.ContractOptions{})
	})
	t.Run("given key", func(t *testing.T) {
		t.Parallel()
		o := streamable.FileSessionsOptions{Key: func() [][]byte { return [][]byte{key} }}
		stores.SessionStoreContract(t, fileSessions(o), proptest.ContractOptions{})
	})
}
