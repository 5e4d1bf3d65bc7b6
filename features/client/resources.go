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
	return readResource.call(ctx, s, params)
}

// GetPrompt gets the messages of a prompt.
func (s *Session) GetPrompt(ctx context.Context, params *protocol.GetPromptParams) (*protocol.GetPromptResult, error) {
	return getPrompt.call(ctx, s, params)
}

// Complete asks how an argument of a prompt or a resource template may go on.
func (s *Session) Complete(ctx context.Context, params *protocol.CompleteParams) (*protocol.CompleteResult, error) {
	return complete.call(ctx, s, params)
}

// Watch keeps a resource current. It subscribes to the resource and yields its
// contents: first as they are now, then after each update, and again whenever a new
// server has taken the place of the one before. While there is no server it waits.
// Updates that come while the program works on the contents before are one.
//
// The range ends after an error that waiting does not mend: the server does not
// offer subscriptions, refuses this one, or cannot read the resource. It also ends
// after an error when ctx ends. A program that leaves the range ends the
// subscription, unless somebody else has one.
func (s *Session) Watch(ctx context.Context, uri string) iter.Seq2[*protocol.ReadResourceResult, error] {
	return func(yield func(*protocol.ReadResourceResult, error) bool) {
		view := s.With(s.options)
		view.options.WaitForReady, view.options.Retries = true, -1
		changed := make(chan struct{}, 1)
		for {
			err := view.subscribeTo(ctx, uri, func(sub *subscription) { sub.add(changed) })
			if err == nil {
				break
			}
			if !errors.Is(err, ErrStale) && !errors.Is(err, ErrUnavailable) || s.options.Epoch != 0 {
				yield(nil, err)
				return
			} // the next server is asked when it is there
		}
		defer func() {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout())
			defer cancel()
			_ = s.unsubscribeFrom(leaving, uri, func(sub *subscription) { delete(sub.watchers, changed) })
		}()
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
		}
	}
}

func (s *subscription) add(watcher chan struct{}) {
	if s.watchers == nil {
		s.watchers = make(map[chan struct{}]bool)
	}
	s.watchers[watcher] = true
}
