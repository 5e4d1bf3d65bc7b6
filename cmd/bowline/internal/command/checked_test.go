package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// talkative lists the commands that connect to a server.
var talkative = []string{"call", "complete", "inspect", "logs", "prompt", "prompts", "read", "resources", "tasks", "tools"}

// checked adds a transcript to the args of a command that connects to a server. At the end
// of the test, each message of the command in the transcript that does not fit the schema
// of its revision fails the test, and so does each message of the bundled server.
func checked(t testing.TB, args []string) []string {
	t.Helper()
	if len(args) == 0 || !slices.Contains(talkative, args[0]) || slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--record") }) {
		return args
	}
	file := filepath.Join(t.TempDir(), "transcript.txt")
	bundled := slices.ContainsFunc(args, func(arg string) bool { return strings.HasSuffix(arg, " serve --stdio") })
	t.Cleanup(func() { checkTranscript(t, file, bundled) })
	return slices.Insert(slices.Clone(args), 1, "--record="+file)
}

// checkTranscript checks what a command has sent, and with bundled what it has received.
// A command that was refused has written no transcript.
func checkTranscript(t testing.TB, path string, bundled bool) {
	t.Helper()
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	entries, err := transcript.Read(file)
	if err != nil {
		t.Errorf("the transcript: %v", err)
	}
	c := &specification.Checker{ThisSide: true, OtherSide: bundled, OnViolation: func(err error) { t.Errorf("against the schema: %v", err) }}
	for _, e := range entries {
		c.Observe(e)
	}
}
