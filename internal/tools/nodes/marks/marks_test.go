package marks

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExecutedIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "executed")
	for text, good := range map[string]bool{"1\n20\n1\n": true, "1\n2 3\n": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		executed, err := Read(path)
		if good && (err != nil || len(executed) != 2 || executed["1"] != 2 || executed["20"] != 1) {
			t.Errorf("read %v, %v", executed, err)
		}
		if !good && err == nil {
			t.Error("a line with two numbers was read")
		}
	}
}
