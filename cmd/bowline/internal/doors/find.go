package doors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/spf13/cobra"
)

// A Choice says which gateway is meant: that of a file, that with a socket, or the only one that runs.
type Choice struct{ file, socket string }

// Add adds the flags of a choice.
func (c *Choice) Add(command *cobra.Command) {
	command.Flags().StringVar(&c.file, "file", "", "the gateway that serves this `FILE`; default: the only one that runs")
	command.Flags().StringVar(&c.socket, "admin", "", "the gateway with this `SOCKET`")
}

// Use does something with the gateway that is meant. The failure has the exit status of its kind.
func (c *Choice) Use(ctx context.Context, do func(*admin.Client) error) error {
	client, err := c.find(ctx)
	if err == nil {
		err = do(client)
	}
	var refused *admin.AnswerError
	var failure *process.Failure
	switch {
	case err == nil, errors.As(err, &failure):
		return err
	case errors.Is(err, admin.ErrNotRunning):
		return &process.Failure{Status: process.ExitNoSession, Err: fmt.Errorf("%w; bowline up starts one%s", err, c.doubt())}
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return process.Refuse("%w", err)
	default:
		return &process.Failure{Status: process.ExitCallFailed, Err: err}
	}
}

func (c *Choice) find(ctx context.Context) (*admin.Client, error) {
	switch {
	case c.socket != "":
		return admin.Dial(c.socket), nil
	case c.file != "":
		return dialOf(c.file)
	default:
		return findOnly(ctx)
	}
}

// doubt says why the gateway of a file may run all the same.
func (c *Choice) doubt() string {
	if c.file == "" || c.socket != "" {
		return ""
	}
	_, err := settingsOf(c.file)
	if err == nil {
		return ""
	}
	return fmt.Sprintf(". Its socket may be in the file, which has a mistake: %v", err)
}

func dialOf(file string) (*admin.Client, error) {
	path, err := socketIn(file)
	if err == nil {
		err = checkFolder(filepath.Dir(path))
	}
	return admin.Dial(path), err
}

// checkFolder fails if another user could have put a socket there, and would be told what to do.
func checkFolder(dir string) error {
	if err := private.CheckFolder(dir); err != nil {
		return process.Refuse("the sockets of gateways: %w", err)
	}
	return nil
}

// socketIn returns the socket that a file names, or the one that is named by the file. A file that has been broken since its gateway has
// started still names that one: who repairs it wants to see how the servers are.
func socketIn(path string) (string, error) {
	named, err := socketOf(path)
	if err != nil {
		return "", err
	}
	top, err := settingsOf(path)
	if broken := (*mcpjson.Error)(nil); errors.As(err, &broken) {
		return named, nil
	} else if err != nil {
		return "", process.Refuse("%w", err)
	}
	return cmp.Or(top.AdminSocket, named), nil
}

// settingsOf reads what a file says of its gateway. The error is an *mcpjson.Error if the file has mistakes.
func settingsOf(path string) (*mcpjson.Gateway, error) {
	file, err := mcpjson.Load(path)
	if err != nil {
		return nil, err
	}
	return file.Gateway()
}

// findOnly looks at all sockets: those of gateways that were killed are left.
func findOnly(ctx context.Context) (*admin.Client, error) {
	sockets, err := allSockets()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var found *admin.Client
	var files []string
	for _, socket := range sockets {
		client := admin.Dial(socket)
		report, err := client.Report(ctx)
		if errors.Is(err, admin.ErrNotRunning) {
			continue
		}
		found, files = client, append(files, cmp.Or(report.File, socket))
	}
	switch len(files) {
	case 0:
		return nil, fmt.Errorf("%w, unless its file names its socket: then --admin SOCKET finds it", admin.ErrNotRunning)
	case 1:
		return found, nil
	default:
		return nil, process.Refuse("several gateways run: choose one by --file: %s", strings.Join(files, ", "))
	}
}

func allSockets() ([]string, error) {
	dir, err := folder()
	if err == nil {
		err = checkFolder(dir)
	}
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, "*"+socketEnd))
}
