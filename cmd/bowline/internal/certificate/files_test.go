package certificate

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Files that are no certificate, or that are not there, are an error at the start. What is served is tested with the command.
//
// Guarantees: G-0097.6
func TestFilesThatAreWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cert.pem")
	for _, text := range []string{"", "-----BEGIN CERTIFICATE-----\n"} {
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if files, err := Load(path, path, func(string) {}); err == nil || files != nil {
			t.Errorf("%q: %v, %v", text, files, err)
		}
	}
}
