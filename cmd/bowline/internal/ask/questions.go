package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// Elicit answers a form of a server. A form without fields asks to agree to its message, so it has
// no other question. Without a terminal it declines.
func (u *User) Elicit(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return u.answer(ctx, s, p, func(shown string) (*protocol.ElicitResult, error) {
		form := readForm(ctx, p.RequestedSchema)
		if len(form.fields) == 0 {
			yes, err := u.decide(ctx, shown)
			return agreed(yes, struct{}{}, err)
		}
		fmt.Fprintln(u.out, shown)
		yes, err := u.decide(ctx, "  Do you want to answer?")
		if yes && err == nil {
			return form.fill(ctx, u)
		}
		return agreed(yes, nil, err)
	})
}

// ElicitURL offers to open a page of a server.
func (u *User) ElicitURL(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return u.answer(ctx, s, p, func(shown string) (*protocol.ElicitResult, error) {
		fmt.Fprintln(u.out, shown)
		yes, err := u.openPage(ctx, p.URL)
		return agreed(yes, nil, err)
	})
}

// answer lets the user reply to a question, and gives reply the text that shows it. Closing the
// input dismisses the question.
func (u *User) answer(ctx context.Context, s *client.Session, p *protocol.ElicitParams, reply func(shown string) (*protocol.ElicitResult, error)) (*protocol.ElicitResult, error) {
	if !u.IsPresent() {
		fmt.Fprintln(u.out, render.Message("declined a question of the server, because there is no terminal: "+p.Message))
		return client.Decline()
	}
	end, err := u.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	result, err := reply(question(s.Name(), p))
	if errors.Is(err, io.EOF) {
		return client.Dismiss()
	}
	return result, err
}

// question shows what a server asks, with the whole URL of a page.
func question(server string, p *protocol.ElicitParams) string {
	text := fmt.Sprintf("the server %q asks:\n%s", server, strings.TrimRight(p.Message, "\n"))
	if p.URL != "" {
		text += "\n\n" + p.URL
	}
	return render.Message(text)
}

// agreed returns the answer for a yes, with its content, or for a no.
func agreed(yes bool, content any, err error) (*protocol.ElicitResult, error) {
	switch {
	case err != nil:
		return nil, err
	case yes:
		return client.Accept(content)
	default:
		return client.Decline()
	}
}
