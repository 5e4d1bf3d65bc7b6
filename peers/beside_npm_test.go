//go:build npm && unix

package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	readmeFile  = "../README.md"
	besideBegin = "<!-- The table is what TestBeside of peers has observed. -->\n\n"
	besideEnd   = "\n<!-- End of the table. -->"
)

// A library is a column of the table.
type library struct {
	title   string
	server  []string // a command that serves the tool add
	connect Connect  // nil: there is no client
	times   string   // its row on the page of benchmarks; "": it is not measured
}

// TestBeside observes what servers and clients of several libraries do by default, and compares it with the table in README. The times are those of the page of
// benchmarks. With -update it rewrites the table.
func TestBeside(t *testing.T) {
	built := programs(t)
	sdk, err := moduleVersion("github.com/modelcontextprotocol/go-sdk")
	if err != nil {
		t.Fatal(err)
	}
	other, err := moduleVersion("github.com/mark3labs/mcp-go")
	if err != nil {
		t.Fatal(err)
	}
	libraries := []library{
		{"Bowline", []string{built.Peer, "add", "bowline"}, connectPatiently, "Bowline"},
		{"go-sdk " + sdk, []string{built.Peer, "add", "go-sdk"}, connectGoSDK, "go-sdk"},
		{"mcp-go " + other, []string{built.Peer, "add", "mcp-go"}, connectMCPGo, "mcp-go"},
		{"FastMCP " + fastMCP.version + " (npm)", []string{"node", "fastmcp.mjs", fastMCP.folder()}, nil, ""},
	}
	rows := [][]string{
		{""},
		{"A server answers clients of"}, {"A call without a required argument"}, {"A tool that panics, or throws, ends"},
		{"After its server was killed, a client's session"}, {"The error of the call that was under way then"}, {"A call over HTTP, median and p99"},
	}
	for _, l := range libraries {
		died, said := afterAKill(t, built, l)
		for i, cell := range []string{l.title, revisionsOf(t, l), withoutArgument(t, l), afterAPanic(t, l), died, said, timesOf(t, l)} {
			rows[i] = append(rows[i], cell)
		}
	}
	var table strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			table.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}
	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(readme), besideBegin)
	was, after, ended := strings.Cut(rest, besideEnd)
	switch {
	case !found || !ended:
		t.Fatal("README has no place for the table")
	case was == table.String():
	case *update:
		if err := os.WriteFile(readmeFile, []byte(before+besideBegin+table.String()+besideEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("README shows\n%s\nand this was observed:\n%s", was, table.String())
	}
}

// revisionsOf says in which revisions a server answers.
func revisionsOf(t *testing.T, l library) string {
	var all []string
	for _, revision := range protocol.Versions() {
		if use(t, l.server, revision, func(ctx context.Context, s Session) error {
			result, err := s.CallTool(ctx, Call{Tool: "add", Arguments: map[string]any{"a": 1}})
			if err == nil && (result.IsError || result.Text != "1" || s.Revision() != revision) {
				err = fmt.Errorf("in %s it answers %q", s.Revision(), result.Text)
			}
			return err
		}) == nil {
			all = append(all, revision)
		}
	}
	switch versions := protocol.Versions(); {
	case len(all) == 0:
		t.Fatalf("%s answers in no revision", l.title)
	case len(all) == len(versions):
		return "all five revisions"
	case slices.Equal(all, versions[:len(all)]):
		return "those up to " + all[len(all)-1]
	}
	return strings.Join(all, ", ")
}

// withoutArgument says what a server does with a call that lacks the argument which its schema requires.
func withoutArgument(t *testing.T, l library) string {
	said := "is refused"
	err := use(t, l.server, protocol.LatestLegacy, func(ctx context.Context, s Session) error {
		result, err := s.CallTool(ctx, Call{Tool: "add", Arguments: map[string]any{}})
		if err == nil && !result.IsError {
			said = "runs the tool"
		}
		return err
	})
	if refused := new(ProtocolError); err != nil && !errors.As(err, &refused) {
		t.Errorf("%s: %v", l.title, err)
	}
	return said
}

// afterAPanic says what else ends with a tool that panics.
func afterAPanic(t *testing.T, l library) string {
	err := use(t, l.server, protocol.LatestLegacy, func(ctx context.Context, s Session) error {
		if result, err := s.CallTool(ctx, Call{Tool: "add", Arguments: map[string]any{"a": unlucky}}); err == nil && !result.IsError {
			t.Errorf("%s: a tool that fails has answered %q", l.title, result.Text)
		}
		_, err := s.CallTool(ctx, Call{Tool: "add", Arguments: map[string]any{"a": 1}})
		return err
	})
	if err != nil {
		return "the server"
	}
	return "its own call"
}

// use makes a session of Bowline's client with a server over its standard input and output.
func use(t *testing.T, command []string, revision string, do func(context.Context, Session) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	s, err := connectBowline(ctx, Endpoint{Command: command}, revision)
	if err != nil {
		return err
	}
	err = do(ctx, s)
	_ = s.Close(ctx) // a server that has died cannot be closed in good order
	return err
}

// connectPatiently leaves everything at its default.
func connectPatiently(ctx context.Context, server Endpoint, revision string) (Session, error) {
	c := client.New(bowlineInfo, client.Options{ProtocolVersion: revision})
	session, err := c.Connect(ctx, &stdio.Command{Path: server.Command[0], Args: server.Command[1:]})
	if err != nil {
		return nil, err
	}
	return bowlineSession{session: session}, nil
}

// afterAKill kills the server of a client in the middle of a call, and says whether the session answers again within five seconds, and what the client has said
// of the call.
func afterAKill(t *testing.T, built *Programs, l library) (again, said string) {
	if l.connect == nil {
		return "no client", "no client"
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	path := filepath.Join(t.TempDir(), "pid")
	command := []string{"/bin/sh", "-c", fmt.Sprintf("echo $$ > '%s'; exec '%s' bowline", path, built.Peer)}
	s, err := l.connect(ctx, Endpoint{Command: command}, protocol.LatestLegacy)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	underWay, failed := newEvent(), make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, Call{Tool: "slow", Arguments: map[string]any{"seconds": 60, "steps": 600}, OnProgress: underWay.set})
		failed <- err
	}()
	if err := underWay.await(ctx); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = <-failed
	if err == nil {
		t.Fatalf("%s: the call of a killed server has been answered", l.title)
	}
	lines := strings.Split(err.Error(), "\n")
	said = "`" + lines[0] + "`"
	again = "is lost"
	patience, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for patience.Err() == nil && again == "is lost" {
		if result, err := s.CallTool(patience, Call{Tool: "echo", Arguments: map[string]any{"message": "again"}}); err == nil && result.Text == "again" {
			again = "answers again"
		}
		select {
		case <-tick.C:
		case <-patience.Done():
		}
	}
	_ = s.Close(ctx) // a session that is lost cannot be closed in good order
	return again, said
}

// timesOf reads the page of benchmarks.
func timesOf(t *testing.T, l library) string {
	if l.times == "" {
		return "not measured"
	}
	page, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, echo, _ := strings.Cut(string(page), "\n## Echo over streamable HTTP\n")
	_, row, found := strings.Cut(echo, "\n| "+l.times+" ")
	cells := strings.Split(row, "|")
	if !found || len(cells) < 3 {
		t.Fatalf("the page of benchmarks has no row for %s", l.times)
	}
	return rounded(cells[1]) + ", " + rounded(cells[2])
}

// rounded is a time without its spread, and without fractions above ten.
func rounded(cell string) string {
	words := strings.Fields(cell)
	if number, err := strconv.ParseFloat(words[0], 64); err == nil && number >= 10 {
		words[0] = strconv.FormatFloat(number, 'f', 0, 64)
	}
	return words[0] + " " + words[1]
}
