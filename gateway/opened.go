package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	mostOpened  = 1024 // how many pages are remembered
	longestPage = 256  // bytes of an id
)

// An openedPage is a page that a server wants a user to open.
type openedPage struct{ server, id string }

// An opened is the pages that legacy clients were asked to open, so that whoever was asked, and nobody else, is told when the user has
// finished. The oldest is forgotten first: nobody says which never will be.
type opened struct {
	mu    sync.Mutex
	by    map[openedPage]*server.Session
	order []openedPage // the oldest first
}

// add notes that a session was asked to open a page. Modern clients are not told when a user has finished, nor are pages without an id.
func (o *opened) add(page openedPage, s *server.Session) {
	if s == nil || page.id == "" || len(page.id) > longestPage {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = make(map[openedPage]*server.Session)
	}
	if _, known := o.by[page]; !known {
		o.order = append(o.order, page)
	}
	if o.by[page] = s; len(o.order) > mostOpened {
		delete(o.by, o.order[0])
		o.order = slices.Delete(o.order, 0, 1)
	}
}

// take returns who was asked to open a page, and forgets it; nil: nobody was.
func (o *opened) take(page openedPage) *server.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.by[page]
	if s != nil {
		delete(o.by, page)
		o.order = slices.DeleteFunc(o.order, func(other openedPage) bool { return other == page })
	}
	return s
}

// requires notes the pages in the error of a server that wants them to be opened before the call.
func (o *opened) requires(call context.Context, from string, err error) {
	var pages protocol.URLElicitationData
	var fault *jsonrpc.Error
	if !errors.As(err, &fault) || fault.Code != protocol.CodeURLElicitationRequired || protocol.Unmarshal(fault.Data, &pages) != nil {
		return
	}
	for _, page := range pages.Elicitations {
		if page != nil {
			o.add(openedPage{from, page.ElicitationID}, server.RequestFrom(call).Session)
		}
	}
}
