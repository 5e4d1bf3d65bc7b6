package client

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/features/internal/paramheader"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// These limits apply to what a session remembers of the tools that its server listed,
// because a server may list any number of tools.
const (
	maxNotes       = 10_000  // how many tools are remembered
	maxNotedName   = 256     // the maximum length of a name, in bytes
	maxNotedSchema = 4 << 20 // the maximum size of all schemas together, in bytes
	maxRefusals    = 100     // for how many schemas of a page it is said when they are listed that they are refused
)

// toolNotes are what a server said about its tools when it last listed them.
type toolNotes struct {
	mu          sync.Mutex
	tools       map[string]toolNote // the tools with a note, by name
	schemaBytes int
}

// A toolNote is what the server said about one tool.
type toolNote struct {
	mode       protocol.ToolMode
	repeatable bool                              // the server says that calling it twice does no harm
	taskOnly   bool                              // in 2025-11-25: it can only be called as a task
	output     *compiled[*schema.Validator]      // its output schema; nil for none
	mirrored   *compiled[[]paramheader.Argument] // its input schema, if it marks arguments as mirrored; otherwise nil
}

func (n toolNote) size() int { return n.output.size() + n.mirrored.size() }

// learn records what is said about some tools. Annotations count only if the program
// trusts the server. It returns the new output schemas that are refused because a reference leads out of them. Each new schema is checked
// once, before another goroutine can have it.
func (n *toolNotes) learn(tools []*protocol.Tool, trusted bool) (refused []refusedOutput) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, tool := range tools {
		before := n.tools[tool.Name]
		said := toolNote{
			mode: tool.Mode(), repeatable: trusted && isRepeatable(tool.Annotations),
			taskOnly: tool.Execution != nil && tool.Execution.TaskSupport == protocol.TaskRequired,
			output:   compiledFrom(tool.OutputSchema, before.output, schema.Compile),
		}
		if bytes.Contains(tool.InputSchema, []byte(paramheader.Keyword)) {
			said.mirrored = compiledFrom(tool.InputSchema, before.mirrored, func(_ context.Context, raw stdjson.RawMessage) ([]paramheader.Argument, error) {
				return paramheader.Arguments(raw)
			})
		}
		n.note(tool.Name, before, said)
		if kept := n.tools[tool.Name].output; kept != nil && kept != before.output {
			if err := schema.CheckReferences(stdjson.RawMessage(kept.text)); err != nil {
				kept.done, kept.err = true, err
				refused = append(refused, refusedOutput{tool.Name, kept, err})
			}
		}
	}
	return slices.DeleteFunc(refused, func(r refusedOutput) bool { return n.tools[r.tool].output != r.output }) // the page lists the tool again
}

// A refusedOutput is an output schema that the client refuses.
type refusedOutput struct {
	tool   string
	output *compiled[*schema.Validator]
	err    error
}

func (n *toolNotes) note(tool string, before, said toolNote) {
	if grows := said.size() - before.size(); grows > 0 && n.schemaBytes+grows > maxNotedSchema {
		said.mirrored = nil
		switch {
		case said.output == nil:
		case before.output != nil && before.output.text == "": // it was refused before
			said.output = before.output
		default:
			said.output = refusedSchema[*schema.Validator](errManySchemas)
		}
	}
	_, known := n.tools[tool]
	switch {
	case said == before:
		return
	case said == toolNote{}:
		delete(n.tools, tool)
	case !known && (len(tool) > maxNotedName || len(n.tools) >= maxNotes):
		return
	default:
		if n.tools == nil {
			n.tools = make(map[string]toolNote)
		}
		n.tools[strings.Clone(tool)] = said
	}
	n.schemaBytes += said.size() - before.size()
}

func isRepeatable(hints *protocol.ToolAnnotations) bool {
	return hints != nil && (hints.ReadOnlyHint || hints.IdempotentHint)
}

func (n *toolNotes) of(tool string) toolNote {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tools[tool]
}

// errManySchemas says why an output schema is not kept.
var errManySchemas = fmt.Errorf("client: the schemas of the server's tools are larger than %d bytes together", maxNotedSchema)

// A compiled holds a schema, and what is compiled from it at the first use.
type compiled[T any] struct {
	text    string
	compile func(context.Context, stdjson.RawMessage) (T, error)

	mu       sync.Mutex
	done     bool
	reported bool // the program knows that the schema is refused
	value    T
	err      error
}

// compiledFrom reuses what was compiled from the same schema before.
func compiledFrom[T any](text stdjson.RawMessage, before *compiled[T], compile func(context.Context, stdjson.RawMessage) (T, error)) *compiled[T] {
	switch {
	case len(text) == 0:
		return nil
	case before != nil && before.text == string(text):
		return before
	}
	return &compiled[T]{text: string(text), compile: compile}
}

// refusedSchema stands for a schema that is not kept.
func refusedSchema[T any](why error) *compiled[T] { return &compiled[T]{done: true, err: why} }

// get compiles the schema, unless it was compiled before. If the context ends meanwhile, the
// next caller begins again.
func (c *compiled[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return c.value, c.err
	}
	value, err := c.compile(ctx, stdjson.RawMessage(c.text))
	if err == nil || ctx.Err() == nil {
		c.done, c.value, c.err = true, value, err
	}
	return value, err
}

// tellOnce reports whether the program is yet to learn that the schema is refused.
func (c *compiled[T]) tellOnce() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.reported
	c.reported = true
	return !before
}

// tellAgain undoes tellOnce, because the event was not queued.
func (c *compiled[T]) tellAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = false
}

func (c *compiled[T]) size() int {
	if c == nil {
		return 0
	}
	return len(c.text)
}
