package command

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// An mcp.json in the working directory comes from the author of that directory,
// and names programs to run with the user's rights. It is used only after the
// user has agreed to this file with this content (ADR-0018).

// agree returns nil if the user has agreed to the file, now or earlier.
func (u *user) agree(ctx context.Context, path string, text []byte) error {
	record, err := consentTo(path, text)
	if err != nil {
		return err
	}
	if _, err := os.Stat(record); err == nil {
		return nil
	}
	if !u.isPresent() {
		return refusal("%s of the working directory may start any program, and nobody has agreed to it.\nName it with --mcp-config %s, or run this once on a terminal, where you are asked.", flat(path), flat(path))
	}
	yes, err := u.confirm(ctx, fmt.Sprintf("%s is in the working directory. Its servers are as follows. Values of variables and headers are not shown, and credentials that are recognised are masked, other credentials not:\n%s\nDo you trust this file? The answer is remembered until the file changes.", path, preview(path, text)))
	switch {
	case err != nil:
		return err
	case !yes:
		return refusal("%s is not used", flat(path))
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return err
	}
	return os.WriteFile(record, []byte(path+"\n"), 0o600)
}

func refusal(format string, args ...any) error {
	return &failure{status: exitUsage, err: fmt.Errorf(format, args...)}
}

// consentTo returns the path whose existence means that the user has agreed to
// the file.
func consentTo(path string, text []byte) (string, error) {
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

// flat turns a text into one printable line without leaving out anything.
func flat(text string) string {
	return printable(strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text))
}

// errNoTerminal is the reason why a user cannot be asked.
var errNoTerminal = errors.New("standard input and standard error are not a terminal: use environment variables, ${NAME}, in place of inputs")

// input asks for an input of an mcp.json.
func (u *user) input(ctx context.Context, in mcpjson.Input) (string, error) {
	if !u.isPresent() {
		return "", errNoTerminal
	}
	f := field{name: in.ID, about: in.Description, fallback: in.Default, hasDefault: in.Default != "", secret: in.Password, required: true}
	for _, name := range in.Options {
		value, err := protocol.Marshal(name)
		if err != nil {
			return "", err
		}
		f.options = append(f.options, option{value: value})
	}
	answer, err := u.value(ctx, f)
	if errors.Is(err, io.EOF) {
		err = errors.New("the user gave none")
	}
	return answer, err
}
