package search

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	byDefault       = 10
	mostFound       = 50
	longestSummary  = 240  // bytes of a description in a list of what was found
	longestNames    = 1024 // bytes of the names of parameters there
	indexingDivisor = 20   // an index is made anew at most for this part of the time
)

// An Endpoint offers four tools, by which a client finds the others, reads about them and calls them. It is safe for concurrent use.
type Endpoint struct {
	// Snapshot returns what the gateway offers.
	Snapshot func(context.Context) *catalogue.Snapshot

	// Visible returns what reports whether the client that asks may see a tool. Nil: it may see all.
	Visible func(context.Context) func(catalogue.Item) bool

	// Missing hears of a name under which the client that asks finds no tool, and returns why, if there is more to say than that. Nil: there is not.
	Missing func(ctx context.Context, name string) (why string)

	// Call calls a tool as if the client had called it by its name: with everything that a gateway checks and counts.
	Call func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)

	mu   sync.Mutex
	last *indexed
}

// An indexed list of tools.
type indexed struct {
	items []catalogue.Item
	index *Index
	of    *catalogue.Snapshot
	until time.Time // when it may be made anew, if the tools have changed
}

// hidden reports of which items the client must not hear.
func (i *indexed) hidden(visible func(catalogue.Item) bool) func(int) bool {
	return func(at int) bool { return !visible(i.items[at]) }
}

// Tools are the endpoint's own, in the order of their names.
func Tools() []catalogue.Item {
	items := make([]catalogue.Item, len(ownTools))
	for i, raw := range ownTools {
		items[i].Raw = raw
	}
	return items
}

// Serve serves tools/call. What is wrong with the arguments is a result that a model can read.
func (e *Endpoint) Serve(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	var given arguments
	if err := protocol.Unmarshal(params, &call); err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	if len(call.Arguments) > 0 {
		if err := protocol.Unmarshal(call.Arguments, &given); err != nil {
			return failed("the arguments of %s: %v", call.Name, err)
		}
	}
	switch call.Name {
	case findTools:
		return e.find(ctx, given)
	case describeTool:
		return e.describe(ctx, given.Name)
	case callReadOnlyTool, callTool:
		return e.call(ctx, call.Name, params, given)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q: here are only %s, %s, %s and %s",
		call.Name[:min(len(call.Name), 128)], findTools, describeTool, callReadOnlyTool, callTool)}
}

// arguments are those of all four tools.
type arguments struct {
	Query     string          `json:"query"`
	Limit     *float64        `json:"limit"` // 5.0 is an integer in JSON Schema
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// most returns how many tools are listed at most.
func (a *arguments) most() int {
	if a.Limit == nil {
		return byDefault
	}
	return int(min(max(*a.Limit, 1), mostFound))
}

// A match is a tool in the list of what was found.
type match struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Parameters  []string `json:"parameters,omitempty"`
	ReadOnly    bool     `json:"readOnly,omitzero"`
}

// summary returns what a list of what was found says of a tool: enough to choose by, and no more.
func summary(item catalogue.Item) match {
	tool := decode(item.Raw)
	return match{item.Name, beginning(tool.Description), fitting(tool.parameters()), item.ReadOnly}
}

func (e *Endpoint) find(ctx context.Context, given arguments) (json.RawMessage, error) {
	if given.Query == "" {
		return failed("find_tools needs a query: a few words that say what the tool is to do")
	}
	known := e.indexed(e.Snapshot(ctx))
	found := known.index.Find(given.Query, given.most(), known.hidden(e.visible(ctx)))
	if len(found) == 0 {
		return text("No tool has any of these words. Try others, or fewer: names of things, such as issue, file or page.")
	}
	matches := make([]match, len(found))
	for i, at := range found {
		matches[i] = summary(known.items[at])
	}
	all, err := protocol.Marshal(matches)
	if err != nil {
		return nil, err
	}
	return text(string(all))
}

func (e *Endpoint) describe(ctx context.Context, name string) (json.RawMessage, error) {
	item, found := e.tool(ctx, name)
	if !found {
		return e.unknown(ctx, name)
	}
	return text(string(item.Raw))
}

// call passes a call on. The params keep all else that the client has sent: its progress token, its answers, and the like.
func (e *Endpoint) call(ctx context.Context, by string, params json.RawMessage, given arguments) (json.RawMessage, error) {
	item, found := e.tool(ctx, given.Name)
	switch {
	case !found:
		return e.unknown(ctx, given.Name)
	case by == callReadOnlyTool && !item.ReadOnly:
		return failed("%s does not say that it only reads: call it with %s", given.Name, callTool)
	}
	name, err := protocol.Marshal(given.Name)
	if err != nil {
		return nil, err
	}
	if given.Arguments == nil {
		given.Arguments = json.RawMessage("{}")
	}
	return e.Call(ctx, scan.Replace(scan.Replace(params, "name", name), "arguments", given.Arguments))
}

func (e *Endpoint) tool(ctx context.Context, name string) (catalogue.Item, bool) {
	item, found := e.Snapshot(ctx).Find(catalogue.Tools, name)
	return item, found && e.visible(ctx)(item)
}

// unknown is the result for a tool that is not there, or that this client may not see.
func (e *Endpoint) unknown(ctx context.Context, name string) (json.RawMessage, error) {
	if e.Missing != nil {
		if why := e.Missing(ctx, name); why != "" {
			return failed("%s", why)
		}
	}
	return failed("unknown tool %q: %s lists those there are", name[:min(len(name), 128)], findTools)
}

func (e *Endpoint) visible(ctx context.Context) func(catalogue.Item) bool {
	if e.Visible == nil {
		return func(catalogue.Item) bool { return true }
	}
	return e.Visible(ctx)
}

// documentsOf returns what is searched of tools.
func documentsOf(items []catalogue.Item) []Document {
	all := make([]Document, len(items))
	for i, item := range items {
		tool := decode(item.Raw)
		all[i] = Document{item.Name, tool.Title, tool.Description, tool.parameters()}
	}
	return all
}

// indexed returns the index of a snapshot, or that of an earlier one if a server changes its tools all the time.
func (e *Endpoint) indexed(now *catalogue.Snapshot) *indexed {
	e.mu.Lock()
	defer e.mu.Unlock()
	began := time.Now()
	if e.last != nil && (e.last.of == now || began.Before(e.last.until)) {
		return e.last
	}
	items := now.Items(catalogue.Tools)
	if e.last != nil && e.last.of.Digest(catalogue.Tools) == now.Digest(catalogue.Tools) {
		e.last.of = now
		return e.last
	}
	e.last = &indexed{items: items, index: New(documentsOf(items)), of: now}
	done := time.Now()
	e.last.until = done.Add(indexingDivisor * done.Sub(began))
	return e.last
}
