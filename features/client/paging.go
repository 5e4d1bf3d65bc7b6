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
	session *Session // from the second page on, for the server that gave the first
	params  *protocol.ListToolsParams
	fetched int
	lastID  int64 // of the request for the last of them
}

func (p *toolPages) fetch(ctx context.Context) (*protocol.ListToolsResult, error) {
	page, of, err := p.session.listTools(ctx, p.params)
	p.fetched++
	p.lastID = of.id
	var failed *conn.CallError
	switch {
	case p.fetched == 1 && err == nil:
		p.session = p.session.boundTo(of.met)
	case p.fetched > 1 && errors.Is(err, conn.ErrStale) && errors.As(err, &failed):
		failed.Err = fmt.Errorf("%w: %w", ErrStaleCursor, failed.Err)
	}
	return page, err
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
	return answered(protocol.MethodListTools, p.lastID, err)
}
