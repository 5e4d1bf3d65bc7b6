// Package marks writes down which calls a server has executed. Who knows which calls were made
// compares the two.
package marks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
)

// Tool is the name of the tool that AddTool adds.
const Tool = "mark"

// Arguments are those of the tool.
type Arguments struct {
	ID     string `json:"id"`               // of the call: letters, digits and "-"
	Before int    `json:"before,omitempty"` // how many milliseconds the call takes before it is written down
	Wait   int    `json:"wait"`             // how many it takes after that
}

// Of returns the arguments of a call.
func Of(id string, wait time.Duration) Arguments {
	return Arguments{ID: id, Wait: int(wait.Milliseconds())}
}

// AddTool adds the tool to a server. It writes the id of a call to w, as a line, when the call
// begins, or later if the call says so, and returns the id. w may be a file that all nodes append to: each line is one write.
func AddTool(s *server.Server, w io.Writer) {
	server.AddTool(s, protocol.Tool{Name: Tool, Description: "Writes the id of the call to a file."},
		func(ctx context.Context, in Arguments) (string, error) {
			return Do(ctx, w, in)
		})
}

// Do does what the tool does.
func Do(ctx context.Context, w io.Writer, in Arguments) (string, error) {
	if !isID.MatchString(in.ID) {
		return "", fmt.Errorf("%.80q is no id of a call", in.ID)
	}
	if err := wait.Sleep(ctx, time.Duration(in.Before)*time.Millisecond); err != nil {
		return "", err
	}
	if _, err := io.WriteString(w, in.ID+"\n"); err != nil {
		return "", err
	}
	return in.ID, wait.Sleep(ctx, time.Duration(in.Wait)*time.Millisecond)
}

// isID keeps an id on its line, and short enough for one write that is appended whole or not at all.
var isID = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// Open opens a file for AddTool.
func Open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// Read returns how often each call was executed.
func Read(path string) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	executed := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if !isID.MatchString(lines.Text()) {
			return nil, fmt.Errorf("%s has the line %.80q", path, lines.Text())
		}
		executed[lines.Text()]++
	}
	return executed, lines.Err()
}
