package client

import (
	"context"
	"errors"
	"iter"

	"github.com/bowline-mcp/bowline/protocol"
)

// ReadResource reads a resource. The error matches ErrNotFound if the server has no
// such resource.
func (s *Session) ReadResource(ctx context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
	return resultOf(readResource.call(ctx, s, params))
}

// GetPrompt gets the messages of a prompt.
func (s *Session) GetPrompt(ctx context.Context, params *protocol.GetPromptParams) (*protocol.GetPromptResult, error) {
	return resultOf(getPrompt.call(ctx, s, params))
}

// Complete asks for completions of an argument of a prompt or a resource template. If
// Ref.Type is empty, it means a resource if Ref has a URI, and otherwise a prompt.
func (s *Session) Complete(ctx context.Context, params *protocol.CompleteParams) (*protocol.CompleteResult, error) {
	typed := copyOf(params)
	switch {
	case typed.Ref.Type != "":
	case typed.Ref.URI != "":
		typed.Ref.Type = protocol.ReferenceResource
	default:
		typed.Ref.Type = protocol.ReferencePrompt
	}
	return resultOf(complete.call(ctx, s, typed))
}

// Subscribe asks the server to report changes of a resource, which arrive as
// *ResourceUpdated events. The session also asks every later server, until
// Unsubscribe. It works in every revision: by resources/subscribe in the legacy ones,
// and by subscriptions/listen in the modern ones. An Unsubscribe during Subscribe counts
// as one after it. Middleware that handles a request about a resource cannot subscribe
// to that resource; it gets an error.
func (s *Session) Subscribe(ctx context.Context, params *protocol.SubscribeParams) error {
	return s.restore.Subscribe(ctx, caller{s}, copyOf(params).URI)
}

// Unsubscribe ends a subscription made by Subscribe. A Watch of the resource
// continues. If there is no server at present, Unsubscribe returns nil, and the
// session does not subscribe at the next server.
func (s *Session) Unsubscribe(ctx context.Context, params *protocol.UnsubscribeParams) error {
	return s.restore.Unsubscribe(ctx, caller{s}, copyOf(params).URI)
}

// Watch keeps a resource current. It subscribes to the resource and yields its
// contents: immediately, after each update, and again after each reconnection. While
// there is no server, Watch waits. Updates that arrive while the program still works
// on earlier contents count as one.
//
// Watch yields an error and ends if waiting would not help: the server, or a later one,
// does not offer subscriptions, refuses this one, does not answer in time, or cannot read
// the resource. It does the same when ctx ends. Leaving the loop ends the subscription, unless something else in
// the program needs it.
func (s *Session) Watch(ctx context.Context, uri string) iter.Seq2[*protocol.ReadResourceResult, error] {
	return func(yield func(*protocol.ReadResourceResult, error) bool) {
		view := s.With(s.options)
		view.options.WaitForReady, view.options.Retries = true, -1
		view.options.Fresh, view.options.MaxStale = true, 0
		changed := make(chan struct{}, 1)
		if err := view.subscribeWatcher(ctx, uri, changed); err != nil {
			yield(nil, err)
			return
		}
		defer s.restore.Unwatch(ctx, caller{s}, uri, changed)
		for {
			contents, err := view.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(contents, nil) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case <-s.conn.Done():
				yield(nil, ErrClosed)
				return
			}
			if err := view.subscribeWatcher(ctx, uri, changed); err != nil { // a later server may refuse
				yield(nil, err)
				return
			}
		}
	}
}

// subscribeWatcher adds a watcher of a resource. If the server is lost meanwhile, it asks
// the next one when that is ready.
func (s *Session) subscribeWatcher(ctx context.Context, uri string, watcher chan struct{}) error {
	for {
		err := s.restore.Watch(ctx, caller{s}, uri, watcher)
		isLost := errors.Is(err, ErrStale) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLost)
		if !isLost || s.options.Epoch != 0 {
			return err
		}
	}
}
