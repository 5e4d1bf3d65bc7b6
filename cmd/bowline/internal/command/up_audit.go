package command

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/monitor"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Sending sends the audit trail somewhere, beside its file.
type Sending interface {
	Send(r audit.Record) // never waits
	Lost() uint64        // how many records were not sent
	Close(ctx context.Context) error
}

// Trails begins to send by OTLP over HTTP, as what is described; nil: the command was built without it.
type Trails func(ctx context.Context, about *resource.Resource) (Sending, error)

// A trailing is the trail of a gateway that runs.
type trailing struct {
	mcpjson.Audit
	trail *audit.Trail // nil: there is none
	key   []byte

	otlp    bool
	sending Sending // nil: it is not sent
}

func (t *trailing) addFlags(command *cobra.Command) {
	command.Flags().BoolVar(&t.otlp, "audit-otlp", false, "send the audit trail, too, by OTLP over HTTP, as the variables OTEL_EXPORTER_OTLP_... say (default: to http://localhost:4318); only in the full command")
}

// check refuses the flag in a command that cannot send.
func (t *trailing) check(with Trails) error {
	if t.otlp && with == nil {
		return process.Lean("--audit-otlp", "OTLP's exporter")
	}
	return nil
}

// take takes what the file says of the trail.
func (t *trailing) take(file mcpjson.Audit) error {
	if t.Audit = file; t.otlp && t.File == "" {
		return errors.New("--audit-otlp sends the audit trail, and the file has none: add \"audit\": {\"file\": \"audit.jsonl\"} to its block \"bowline\"")
	}
	return nil
}

// open opens the trail, if the file names one. Without it nobody is served: whoever wants a trail wants all of it.
func (t *trailing) open(ctx context.Context, node string, with Trails, say func(string)) error {
	if t.File == "" {
		return nil
	}
	err := t.readKey()
	if err == nil {
		err = t.beginSending(ctx, with)
	}
	if err != nil {
		return process.Refuse("%w", err)
	}
	o := audit.Options{Key: t.key, Node: node, Block: t.Block, Sync: t.Sync, Keep: t.Keep}
	if t.sending != nil {
		o.Written = t.sending.Send
	}
	if t.trail, err = audit.Open(t.File, o); err != nil {
		t.endSending(say)
		return process.Refuse("%w", err)
	}
	say("the audit trail is " + t.File)
	return nil
}

// readKey finds the files of the trail, and reads its key.
func (t *trailing) readKey() (err error) {
	if t.Key == "" {
		t.Key, err = doors.AuditKey()
	}
	for _, path := range []*string{&t.File, &t.Key} { // absolute: who asks for them may be in another folder
		if err == nil {
			*path, err = filepath.Abs(*path)
		}
	}
	if err == nil {
		t.key, err = audit.ReadKey(t.Key)
	}
	return err
}

func (t *trailing) beginSending(ctx context.Context, with Trails) error {
	if !t.otlp {
		return nil
	}
	about, err := monitor.About(ctx)
	if err == nil {
		t.sending, err = with(ctx, about)
	}
	return err
}

// close is called when nobody is served any more.
func (t *trailing) close(say func(string)) {
	if t.trail == nil {
		return
	}
	if err := t.trail.Close(); err != nil {
		say("the audit trail: " + err.Error())
	}
	t.endSending(say)
}

// endSending sends the rest, for as long as running calls may take. What cannot be sent is in the file.
func (t *trailing) endSending(say func(string)) {
	if t.sending == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.FinishGrace)
	defer cancel()
	if err := t.sending.Close(ctx); err != nil {
		say("the audit trail was not sent to its end: " + err.Error())
	}
}

// unsent is how many records were written, and not sent.
func (t *trailing) unsent() uint64 {
	if t.sending == nil {
		return 0
	}
	return t.sending.Lost()
}

// add makes a gateway write its records.
func (t *trailing) add(o *gateway.Options) {
	if o.Audit = t.write(); o.Audit != nil && !t.NoArguments {
		o.Digest = audit.Digest(t.key)
	}
}

// write returns what takes records; nil: there is no trail.
func (t *trailing) write() func(context.Context, audit.Record) {
	if t.trail == nil {
		return nil
	}
	return t.trail.Write
}
