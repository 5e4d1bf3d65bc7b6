package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/spf13/cobra"
)

const auditLong = `Print who has asked what of a gateway, from the file that "audit" in the block
"bowline" of its mcp.json names: time, user, client, method, what was called, its
server, the outcome, and how long it took. Without a FILE, the running gateway says
where its trail is.

With --verify nothing is printed but whether the trail is whole. If a record was
changed, added, left out or cut off, the first one is named, and the status is 1. That
needs the key with which the trail was written.`

const auditExample = `  bowline audit --follow
  bowline audit audit.jsonl --user "token ada"
  bowline audit audit.jsonl --json | jq .
  bowline audit audit.jsonl --verify`

// An auditing is what audit was told.
type auditing struct {
	user, server   string // "": all
	follow, asJSON bool
	verify         bool
	key            string // its file

	last uint64 // number of the newest record that was read
}

func newAudit() *cobra.Command {
	a := new(auditing)
	of := new(doors.Choice)
	command := &cobra.Command{Use: "audit [FILE]", Short: "Print or verify the audit trail of a gateway", Long: auditLong, Example: auditExample, Args: atMost(1)}
	of.Add(command)
	flags := command.Flags()
	flags.StringVar(&a.user, "user", "", "only requests of this `USER`: an identity, or a name that the login gives")
	flags.StringVar(&a.server, "server", "", "only what was passed on to this `SERVER`")
	flags.BoolVar(&a.follow, "follow", false, "print what comes, too")
	flags.BoolVar(&a.asJSON, "json", false, "print the records as they are")
	flags.BoolVar(&a.verify, "verify", false, "only check that the trail is whole")
	flags.StringVar(&a.key, "key", "", "the `FILE` of the key; default: that of the gateway, or bowline/audit.key beside your settings")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			found, err := a.find(cmd.Context(), of)
			if err != nil {
				return err
			}
			args = []string{found}
		}
		path := args[0]
		if a.verify {
			return a.check(cmd, path)
		}
		return a.print(cmd.Context(), cmd.OutOrStdout(), path)
	}
	return command
}

// find asks the running gateway where its trail and its key are.
func (a *auditing) find(ctx context.Context, of *doors.Choice) (path string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return path, of.Use(ctx, func(c *admin.Client) error {
		report, err := c.Report(ctx)
		if err != nil {
			return err
		}
		if path = report.AuditFile; path == "" {
			return process.Usage(errors.New("the gateway has no audit trail: add \"audit\": {\"file\": \"audit.jsonl\"} to the block \"bowline\" of its file, or name a FILE"))
		}
		a.key = cmp.Or(a.key, report.AuditKey)
		return nil
	})
}

// check verifies a trail. A key that is not there must not be made: it would fit no trail.
func (a *auditing) check(cmd *cobra.Command, path string) error {
	keyFile := a.key
	if keyFile == "" {
		var err error
		if keyFile, err = doors.AuditKey(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(keyFile); err != nil {
		return process.Refuse("the key of the trail: %w", err)
	}
	key, err := audit.ReadKey(keyFile)
	if err != nil {
		return process.Refuse("the key of the trail: %w", err)
	}
	s, err := audit.Verify(path, key)
	if errors.As(err, new(*audit.BrokenError)) {
		return &process.Failure{Status: process.ExitToolFailed, Err: err}
	} else if err != nil {
		return process.Refuse("%w", err)
	}
	text := fmt.Sprintf("%s: whole: records %d to %d, files: %d", render.Flat(path), s.First, s.Last, s.Files)
	if s.Lost > 0 {
		text += fmt.Sprintf("; %d were dropped, as it says itself", s.Lost)
	}
	if s.Unclean > 0 {
		text += fmt.Sprintf("; %d gateways were killed: what they had not written is missing", s.Unclean)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// print prints the records of a trail, and with follow those that come, also in the files that take the place of a full one.
func (a *auditing) print(ctx context.Context, out io.Writer, path string) error {
	for {
		full, newest, err := audit.OpenFiles(path)
		if err != nil {
			return process.Refuse("%w", err)
		}
		if err = a.printFull(ctx, out, full); err == nil {
			err = a.printAll(ctx, out, newest, path, a.follow)
		}
		if err = errors.Join(err, newest.Close()); err != nil || !a.follow {
			return err
		}
	}
}

// printFull prints the records of the files that are full.
func (a *auditing) printFull(ctx context.Context, out io.Writer, files []string) error {
	for _, name := range files {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was too old to be kept
		} else if err != nil {
			return process.Refuse("%w", err)
		}
		err = a.printAll(ctx, out, file, name, false)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain is how long a file that is followed rests between two looks.
const lookAgain = 200 * time.Millisecond

// printAll returns at the end of a file, or if it is followed, when another one has its name.
func (a *auditing) printAll(ctx context.Context, out io.Writer, file *os.File, path string, follow bool) error {
	in, line := bufio.NewReader(file), ""
	for {
		part, err := in.ReadString('\n')
		line += part
		switch {
		case err == nil:
			if err := a.printLine(out, strings.TrimSuffix(line, "\n")); err != nil {
				return err
			}
			line = ""
		case !errors.Is(err, io.EOF):
			return err
		case !follow || isReplaced(file, path):
			return nil
		case wait.Sleep(ctx, lookAgain) != nil:
			return ctx.Err()
		}
	}
}

// isReplaced reports whether another file has this name by now: that one was full, and has another name. If this cannot be told, it says no, and
// the next look decides.
func isReplaced(file *os.File, path string) bool {
	of, err := file.Stat()
	now, failed := os.Stat(path)
	return err == nil && failed == nil && !os.SameFile(of, now)
}

// printLine prints a record. Names in it are what clients have sent, so nothing of it may drive a terminal.
func (a *auditing) printLine(out io.Writer, line string) error {
	var r audit.Record
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		r = audit.Record{Event: "unreadable", Reason: err.Error()}
	}
	if r.Number != 0 && r.Number <= a.last {
		return nil
	}
	a.last = max(a.last, r.Number)
	if a.user != "" && r.Principal != a.user && r.User != a.user || a.server != "" && r.Server != a.server {
		return nil
	}
	if a.asJSON {
		_, err := fmt.Fprintln(out, render.Printable(line))
		return err
	}
	fields := []string{r.Time.Format(time.RFC3339), who(r), orDash(r.Client), orDash(r.Event + r.Method), orDash(r.Name), orDash(r.Server), orDash(r.Outcome), fmt.Sprintf("%.1f ms", r.Millis)}
	if r.Count > 0 {
		fields = append(fields, fmt.Sprint(r.Count))
	}
	for _, why := range []string{strings.TrimSpace(r.Delivery + " " + r.Reason), r.Rule} {
		if why != "" {
			fields = append(fields, why)
		}
	}
	for i, field := range fields {
		fields[i] = render.Flat(field)
	}
	_, err := fmt.Fprintln(out, strings.Join(fields, "  "))
	return err
}

// who also has the name by which people know a principal.
func who(r audit.Record) string {
	if r.User != "" {
		return r.User + " (" + r.Principal + ")"
	}
	return orDash(r.Principal)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
