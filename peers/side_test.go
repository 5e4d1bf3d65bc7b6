package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	sideFile     = "../docs/side-by-side.md"
	bowlineSides = "../examples/side"
	sdkSides     = "side"
)

const sidePreface = `# Side by side

This page shows the same programs with Bowline and with the official Go SDK (go-sdk %s). The tests compile both, and call
the servers of tools and of questions in both eras. They count the lines of code, without blank lines and comments,
and fail if Bowline needs more. To rewrite this page:

    cd peers && go test -count=1 -run TestSideBySide . -update

| Program | Bowline | go-sdk | What differs |
| --- | --- | --- | --- |
`

// sides are the programs, with remarks on them.
var sides = []struct{ name, title, differs string }{
	{"tools", "five tools: an enum, a failure, an image, progress, cancellation", "Bowline fills in the default from a tag"},
	{"questions", "a tool that asks twice, in every revision", "Bowline encrypts the state that the client returns"},
	{"shutdown", "HTTP, and a shutdown that lets calls finish", "nothing"},
	{"call", "a client that survives its server, and a typed call", "Bowline says whether a failed call may have been executed, and checks the result against its schema"},
	{"eras", "a test of a tool that asks, in both eras", "Bowline checks every message against the schema of its revision"},
}

// TestSideBySide counts the lines of both programs, and compares the page with them.
func TestSideBySide(t *testing.T) {
	version, err := moduleVersion("github.com/modelcontextprotocol/go-sdk")
	if err != nil {
		t.Fatal(err)
	}
	var page, code strings.Builder
	fmt.Fprintf(&page, sidePreface, version)
	for _, side := range sides {
		file := side.name + "/main.go"
		if side.name == "eras" {
			file = "eras/main_test.go"
		}
		bowline, theirs := readSide(t, bowlineSides, file), readSide(t, sdkSides, file)
		n, m := codeLines(bowline), codeLines(theirs)
		if n > m {
			t.Errorf("%s has %d lines, and %d with go-sdk", side.name, n, m)
		}
		fmt.Fprintf(&page, "| %s | [%d](../examples/side/%s) | [%d](../peers/side/%s) | %s |\n", side.title, n, file, m, file, side.differs)
		fmt.Fprintf(&code, "\n## %s\n\nWith Bowline:\n\n```go\n%s```\n\nWith go-sdk:\n\n```go\n%s```\n", strings.ToUpper(side.title[:1])+side.title[1:], bowline, theirs)
	}
	page.WriteString(code.String())
	testenv.Page(t, sideFile, page.String(), *update)
}

func readSide(t *testing.T, folder, file string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimLeft(source, "\n")
}

// codeLines counts the lines on which there is a token.
func codeLines(source []byte) int {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := make(map[int]bool)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return len(lines)
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue
		}
		lines[file.Line(at)] = true
	}
}

func TestCodeLines(t *testing.T) {
	if n := codeLines([]byte("// A comment.\npackage main\n\nfunc main() { // says little\n\tprintln(`a`)\n\n}\n")); n != 4 {
		t.Errorf("counted %d lines, want 4", n)
	}
}

// buildSides builds the programs of a folder, and returns the folder of the binaries.
func buildSides(t *testing.T, folder string) string {
	t.Helper()
	to := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", to, "./...")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return to
}

// Both programs do the same, for a client of either era.
func TestSidesDoTheSame(t *testing.T) {
	for name, folder := range map[string]string{"Bowline": buildSides(t, bowlineSides), "go-sdk": buildSides(t, sdkSides)} {
		for _, revision := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(name+" "+revision, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
				defer cancel()
				open := func(program string) *client.Session {
					o := client.Options{ProtocolVersion: revision, FailFast: true, Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
						if strings.Contains(p.Message, "size") {
							return client.Accept(map[string]string{"size": "large"})
						}
						return client.Accept(map[string]string{"street": "High Street"})
					}}
					session, err := client.New(bowlineInfo, o).Connect(ctx, observed(ctx, &stdio.Command{Path: filepath.Join(folder, program)}))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = session.Close(context.Background()) })
					return session
				}
				checkFiveTools(ctx, t, open("tools"))
				if got, err := client.Call[string](ctx, open("questions"), "order", nil); err != nil || got != "a large one goes to High Street" {
					t.Errorf("questions: got %q, %v", got, err)
				}
			})
		}
	}
}

func checkFiveTools(ctx context.Context, t *testing.T, session *client.Session) {
	t.Helper()
	oslo := map[string]any{"city": "Oslo"}
	if got, err := client.Call[map[string]any](ctx, session, "forecast", oslo); err != nil || got["unit"] != "celsius" {
		t.Errorf("tools: the forecast is %v, %v", got, err)
	}
	var failed *client.ToolError
	if _, err := client.Call[map[string]any](ctx, session, "forecast", map[string]any{"city": "Oslo", "unit": "kelvin"}); !errors.As(err, &failed) {
		t.Errorf("tools: a unit that does not exist: %v", err)
	}
	if _, err := client.Call[map[string]any](ctx, session, "tides", oslo); !errors.As(err, &failed) || failed.Error() == "" {
		t.Errorf("tools: the tides are %v", err)
	}
	if _, err := client.Call[string](ctx, session, "radar", nil); !errors.As(err, &failed) {
		t.Errorf("tools: a picture that is not there: %v", err)
	}
	reported := make(chan string, 1)
	reporting := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) { reported <- p.Message }})
	got, err := client.Call[int](ctx, reporting, "index", map[string]any{"files": []string{"notes.md"}})
	if err != nil || got != 1 {
		t.Errorf("tools: indexed %d, %v", got, err)
	}
	if message, err := awaitMessage(ctx, reported); err != nil || message != "notes.md" {
		t.Errorf("tools: the progress is %q, %v", message, err)
	}
	leaving, leave := context.WithCancel(ctx)
	leave()
	if _, err := client.Call[string](leaving, session, "wait", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("tools: a cancelled call: %v", err)
	}
}
