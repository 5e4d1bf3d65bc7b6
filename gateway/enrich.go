package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// MetaContext is the member of _meta in which a result has the Meta of an Addition.
const MetaContext = "io.github.bowline-mcp/context"

const (
	maxEnriching = 64       // calls of Enrich at a time
	maxAddition  = 64 << 10 // bytes
	enrichTime   = time.Second / 2
	sayAgain     = time.Minute // between two lines of the log: what fails does so at each call
)

// A ToolCall is a call of a tool that its server has answered.
type ToolCall struct {
	Server    string          // as the file names it
	Tool      string          // as the server names it
	Identity  string          // of the user, as a login has established it; "": nobody has logged in
	Arguments json.RawMessage // nil: there were none
	Result    json.RawMessage // of tools/call, as the server has sent it; isError may be set
}

// An Addition is what is added to the result of a call, for its client. The zero value adds nothing.
type Addition struct {
	Meta    any               // becomes _meta["io.github.bowline-mcp/context"], as JSON; nil: nothing
	Content protocol.Contents // comes after what the server has sent
}

// An enricher asks what is to be added to results.
type enricher struct {
	given  func(context.Context, ToolCall) (Addition, error) // nil: nothing is added
	time   time.Duration
	log    *slog.Logger  // never nil
	places chan struct{} // of the calls of given, also those for which nobody waits any more
	failed atomic.Int64
	said   atomic.Pointer[time.Time] // when the log was told of a failure

	closing sync.Mutex // of two that wait for all places, each would have some
}

func newEnricher(given func(context.Context, ToolCall) (Addition, error), limit time.Duration, log *slog.Logger) *enricher {
	return &enricher{given: given, log: log, time: cmp.Or(max(limit, 0), enrichTime), places: make(chan struct{}, maxEnriching)}
}

// enriched returns a result with what is to be added to it. If that fails, for whatever reason, it is the result as it was: the server has done what it was asked for.
func (e *enricher) enriched(ctx context.Context, of catalogue.Item, params, result json.RawMessage) json.RawMessage {
	if e.given == nil {
		return result
	}
	if content, _ := jsonrpc.Member(result, "content"); len(content) == 0 || content[0] != '[' { // a task has none yet
		return result
	}
	arguments, _ := jsonrpc.Member(params, "arguments")
	call := ToolCall{of.Server, of.Own, server.RequestFrom(ctx).Origin.Identity, bytes.Clone(arguments), bytes.Clone(result)}
	added, err := e.ask(ctx, call)
	if err == nil {
		var more json.RawMessage
		if more, err = added.addTo(result); err == nil {
			return more
		}
	}
	if ctx.Err() == nil { // else there is nobody whose result is poorer
		e.count(of, err)
	}
	return result
}

// count counts a failure, and tells the log of it if it is not told all the time.
func (e *enricher) count(of catalogue.Item, err error) {
	all := e.failed.Add(1)
	if at, last := time.Now(), e.said.Load(); (last == nil || at.Sub(*last) >= sayAgain) && e.said.CompareAndSwap(last, &at) {
		e.log.Warn("bowline: the result of a tool is not enriched", "server", of.Server, "tool", of.Own, "error", err, "all", all)
	}
}

var (
	errCrowded  = fmt.Errorf("%d calls of Enrich are running already", maxEnriching)
	errTaken    = fmt.Errorf("the server has used %s itself, or a _meta that nothing can be added to", MetaContext)
	errAddition = fmt.Errorf("the addition has more than %d bytes", maxAddition)
)

// ask calls the function of the program. One that does not heed its context must hold up nobody, so it runs on a goroutine of its own, which close waits for.
func (e *enricher) ask(ctx context.Context, call ToolCall) (Addition, error) {
	select {
	case e.places <- struct{}{}:
	default:
		return Addition{}, errCrowded
	}
	ctx, cancel := context.WithTimeout(ctx, e.time)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-e.places }()
		done <- e.call(ctx, call)
	}()
	select {
	case o := <-done:
		return o.added, o.err
	case <-ctx.Done():
		return Addition{}, ctx.Err()
	}
}

// An outcome is what the function of the program has returned.
type outcome struct {
	added Addition
	err   error
}

// call makes an error of a panic: the call of the client is not at fault.
func (e *enricher) call(ctx context.Context, call ToolCall) (o outcome) {
	defer func() {
		if r := recover(); r != nil {
			o.err = fmt.Errorf("it panicked: %v", r)
		}
	}()
	o.added, o.err = e.given(ctx, call)
	return o
}

// close waits until nothing is running any more. No call comes after it.
func (e *enricher) close(ctx context.Context) error {
	e.closing.Lock()
	defer e.closing.Unlock()
	for range cap(e.places) {
		select {
		case e.places <- struct{}{}: // nothing has it, so the context does not matter
		default:
			select {
			case e.places <- struct{}{}:
			case <-ctx.Done():
				return errors.New("gateway: a call of Enrich does not end")
			}
		}
		defer func() { <-e.places }()
	}
	return nil
}

// addTo returns a copy of a result, which has an array as its content, with the addition. What the server has said stays as it is, whatever that is.
func (a *Addition) addTo(result json.RawMessage) (json.RawMessage, error) {
	content, meta, err := a.encode()
	switch {
	case err != nil:
		return nil, err
	case len(content)+len(meta) > maxAddition:
		return nil, errAddition
	}
	if content != nil {
		own, _ := jsonrpc.Member(result, "content")
		result = scan.Replace(result, "content", joined(own, content))
	}
	if meta != nil {
		result = withMeta(result, meta)
	}
	if result == nil {
		return nil, errTaken
	}
	return result, nil
}

// encode returns the content and the members of _meta; nil: there is nothing to be added.
func (a *Addition) encode() (content, meta json.RawMessage, err error) {
	if len(a.Content) > 0 {
		content, err = protocol.Marshal(a.Content)
	}
	if a.Meta != nil && err == nil {
		meta, err = protocol.Marshal(map[string]any{MetaContext: a.Meta})
	}
	return content, meta, err
}

// withMeta adds members to the _meta of a result. Nil: it has something else there.
func withMeta(result, members json.RawMessage) json.RawMessage {
	meta, repeated := jsonrpc.Member(result, "_meta")
	taken, _ := jsonrpc.Member(meta, MetaContext)
	switch {
	case repeated || taken != nil || meta != nil && meta[0] != '{':
		return nil
	case meta == nil:
		return append(scan.AppendMembers(append([]byte(`{"_meta":`), members...), result), '}')
	default:
		return scan.Replace(result, "_meta", joined(meta, members))
	}
}

// joined returns an array or object with the elements of another one after its own.
func joined(a, b json.RawMessage) json.RawMessage {
	inner := bytes.TrimSpace(a[1 : len(a)-1])
	all := append(make(json.RawMessage, 0, len(a)+len(b)), a[:len(a)-1]...)
	if len(inner) > 0 {
		all = append(all, ',')
	}
	return append(all, b[1:]...)
}
