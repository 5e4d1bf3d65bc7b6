package ask

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// OpenPages offers the pages that the user must visit before a request can be served. It reports
// whether the request should be sent again.
func (u *User) OpenPages(ctx context.Context, s *client.Session, pages []*protocol.ElicitParams) (again bool, err error) {
	if !u.IsPresent() {
		return false, nil
	}
	end, err := u.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	for _, page := range pages {
		fmt.Fprintln(u.out, question(s.Name(), page))
		if yes, err := u.openPage(ctx, page.URL); err != nil || !yes {
			return false, err
		}
	}
	return u.decide(ctx, "  Have you finished there? Then the request is sent again.")
}

// PagesFirst returns the pages that a request needs first, if its error is a
// CodeURLElicitationRequired of 2025-11-25.
func PagesFirst(err error) []*protocol.ElicitParams {
	var refused *jsonrpc.Error
	var data protocol.URLElicitationData
	if !errors.As(err, &refused) || refused.Code != protocol.CodeURLElicitationRequired || protocol.Unmarshal(refused.Data, &data) != nil {
		return nil
	}
	return data.Elicitations
}

// openPage opens a page in the browser of the user, if the user agrees. Its URL has been shown, and
// is never fetched. What cannot be opened is not offered. It reports whether the user has agreed.
func (u *User) openPage(ctx context.Context, address string) (bool, error) {
	page, err := url.Parse(address)
	switch {
	case err != nil || page.Host == "" || page.Scheme != "https" && page.Scheme != "http":
		fmt.Fprintln(u.out, "  Declined: this is not the address of a web page.")
		return false, nil
	case !network.KeepsSecrets(page):
		fmt.Fprintln(u.out, "  It is not opened for you, because it is not https: others on the network can read and change it.")
		return u.yesOrNo(ctx, openYourself)
	}
	yes, err := u.yesOrNo(ctx, fmt.Sprintf("Open %s in your browser?", render.Flat(page.Host)))
	if err != nil || !yes {
		return false, err
	}
	if err := auth.Browse(ctx, page); err != nil {
		fmt.Fprintf(u.out, "  It was not opened: %s\n", render.Flat(err.Error()))
		return u.yesOrNo(ctx, openYourself)
	}
	fmt.Fprintln(u.out, "  If no page appears, open it yourself.")
	return true, nil
}

const openYourself = "Open the page yourself if you trust it. Have you opened it?"
