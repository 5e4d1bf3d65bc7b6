// Package consent asks the user before an mcp.json of the working directory is used. It starts no
// goroutine.
//
// Such a file comes from the author of that directory, and names programs to run with the user's
// rights. It is used only after the user has agreed to this file with this content (ADR-0018). What
// could run is never hidden from the question; a credential may be shown where the two cannot be
// told apart.
package consent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
)

// Agree returns nil if the user has agreed to the file, now or earlier.
func Agree(ctx context.Context, u *ask.User, path string, text []byte) error {
	record, err := ConsentTo(path, text)
	if err != nil {
		return err
	}
	if _, err := os.Stat(record); err == nil {
		return nil
	}
	if !u.IsPresent() {
		return process.Refuse("%s of the working directory may start any program, and nobody has agreed to it.\nName it with --mcp-config %s, or run this once on a terminal, where you are asked.", render.Flat(path), render.Flat(path))
	}
	yes, err := u.Confirm(ctx, fmt.Sprintf("%s is in the working directory. Its servers are as follows. Values of variables and headers are not shown, and credentials that are recognised are masked, other credentials not:\n%s\nDo you trust this file? The answer is remembered until the file changes.", path, preview(path, text)))
	switch {
	case err != nil:
		return err
	case !yes:
		return process.Refuse("%s is not used", render.Flat(path))
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return err
	}
	return os.WriteFile(record, []byte(path+"\n"), 0o600)
}

// ConsentTo returns the path whose existence means that the user has agreed to
// the file.
func ConsentTo(path string, text []byte) (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no place to remember consent: %w; use --mcp-config %s", err, path)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\x00%s", absolute, text)
	return filepath.Join(config, "bowline", "consent", fmt.Sprintf("%x", hash.Sum(nil))), nil
}
