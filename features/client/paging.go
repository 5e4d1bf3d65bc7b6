package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// Tools ranges over the tools of all pages, fetching each as it is reached,
// beginning with the page of params. It ends after the first error, a
// *conn.CallError. Behind that is ErrStaleCursor when the server was replaced
// between two pages, ErrRepeatedCursor when a cursor leads back to its page,
// and a *protocol.LimitError beyond MaxPages.
func (s *Session) Tools(ctx context.Context, params *protocol.ListToolsParams) iter.Seq2[*protocol.Tool, error] {
	return func(yield func(*protocol.Tool, error) bool) {
		pages := toolPages{session: s, params: orNew(params)}
		for more := true; more; {
			page, err := pages.fetch(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, tool := range page.Tools {
				if !yield(tool, nil) {
					return
				}
			}
			if more, err = pages.turn(page.NextCursor); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// toolPages is a walk through the pages of one server session.
type toolPages struct {
	session *Session
	params  *protocol.ListToolsParams
	fetched int
	of      *meeting // the server session whose cursors they are
}

func (p *toolPages) fetch(ctx context.Context) (*protocol.ListToolsResult, error) {
	p.fetched++
	if p.fetched == 1 {
		return p.first(ctx)
	}
	page, err := p.session.listTools(ctx, p.of.incarnation, p.params)
	if conn.NotExecuted(err) && over(err) {
		return nil, p.session.notSent(protocol.MethodListTools, conn.Refused, ErrStaleCursor)
	}
	return page, err
}

// first fetches the first page. Should that come from a later server session
// than the one noted here, the latter is over, and its incarnation refuses the
// cursor.
func (p *toolPages) first(ctx context.Context) (*protocol.ListToolsResult, error) {
	s := p.session
	if err := s.offersTools(ctx, protocol.MethodListTools); err != nil {
		return nil, err
	}
	p.of = s.latest.Load()
	return s.listTools(ctx, s.conn, p.params)
}

// over reports whether a call was refused because its incarnation is over.
func over(err error) bool {
	return errors.Is(err, conn.ErrStale) || errors.As(err, new(*conn.StateError))
}

// turn takes the cursor of the next page, if there is one.
func (p *toolPages) turn(next *string) (more bool, err error) {
	used := p.params.Cursor
	switch {
	case next == nil:
		return false, nil
	case used != nil && *used == *next:
		return false, p.useless(fmt.Errorf("%w: %.100q", ErrRepeatedCursor, *next))
	case p.fetched == MaxPages:
		return false, p.useless(&protocol.LimitError{What: "pages of tools", Limit: MaxPages})
	default:
		p.params.Cursor = next
		return true, nil
	}
}

func (p *toolPages) useless(err error) error {
	return answered(protocol.MethodListTools, p.session.conn.NextID(), err)
}
