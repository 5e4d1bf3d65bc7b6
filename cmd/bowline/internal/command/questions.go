package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/loopback"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"golang.org/x/term"
)

// A user is the person at the terminal. Questions go to standard error and
// answers come from standard input, one question at a time.
type user struct {
	in      io.Reader
	out     io.Writer
	askLock chan struct{} // contains a token while no question is asked

	// pending is a line that a question has not waited for: reading a terminal
	// cannot be interrupted.
	pending chan typedLine

	limit callTimeout // the timeout of the call, which waits for the answer
}

type typedLine struct {
	line string
	err  error // io.EOF: the user closed the input
}

func newUser(in io.Reader, out io.Writer) *user {
	u := &user{in: in, out: out, askLock: make(chan struct{}, 1)}
	u.askLock <- struct{}{}
	return u
}

// isPresent reports whether there is a user at a terminal.
func (u *user) isPresent() bool { return isTerminal(u.in) && isTerminal(u.out) }

// begin waits until no other question is asked. A line that was
// typed after an earlier question was cancelled does not answer the next one.
func (u *user) begin(ctx context.Context) (end func(), err error) {
	select {
	case <-u.askLock:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-u.pending:
		u.pending = nil
	default:
	}
	u.limit.pause()
	return func() {
		u.limit.resume()
		u.askLock <- struct{}{}
	}, nil
}

// elicit answers a form of a server. A form without fields asks to agree to its message, so it has
// no other question. Without a terminal it declines.
func (u *user) elicit(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
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

// elicitURL offers to open a page of a server.
func (u *user) elicitURL(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return u.answer(ctx, s, p, func(shown string) (*protocol.ElicitResult, error) {
		fmt.Fprintln(u.out, shown)
		yes, err := u.openPage(ctx, p.URL)
		return agreed(yes, nil, err)
	})
}

// answer lets the user reply to a question, and gives reply the text that shows it. Closing the
// input dismisses the question.
func (u *user) answer(ctx context.Context, s *client.Session, p *protocol.ElicitParams, reply func(shown string) (*protocol.ElicitResult, error)) (*protocol.ElicitResult, error) {
	if !u.isPresent() {
		fmt.Fprintln(u.out, message("declined a question of the server, because there is no terminal: "+p.Message))
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
	return message(text)
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

// openPages offers the pages that the user must visit before a request can be served. It reports
// whether the request should be sent again.
func (u *user) openPages(ctx context.Context, s *client.Session, pages protocol.Elicitations) (again bool, err error) {
	if !u.isPresent() {
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

// pagesFirst returns the pages that a request needs first, if its error is a
// CodeURLElicitationRequired of 2025-11-25.
func pagesFirst(err error) protocol.Elicitations {
	var refused *jsonrpc.Error
	var data protocol.URLElicitationData
	if !errors.As(err, &refused) || refused.Code != protocol.CodeURLElicitationRequired || protocol.Unmarshal(refused.Data, &data) != nil {
		return nil
	}
	return data.Elicitations
}

// openPage opens a page in the browser of the user, if the user agrees. Its URL has been shown, and
// is never fetched. What cannot be opened is not offered. It reports whether the user has agreed.
func (u *user) openPage(ctx context.Context, address string) (bool, error) {
	page, err := url.Parse(address)
	switch {
	case err != nil || page.Host == "" || page.Scheme != "https" && page.Scheme != "http":
		fmt.Fprintln(u.out, "  Declined: this is not the address of a web page.")
		return false, nil
	case !loopback.KeepsSecrets(page):
		fmt.Fprintln(u.out, "  It is not opened for you, because it is not https: others on the network can read and change it.")
		return u.yesOrNo(ctx, openYourself)
	}
	yes, err := u.yesOrNo(ctx, fmt.Sprintf("Open %s in your browser?", flat(page.Host)))
	if err != nil || !yes {
		return false, err
	}
	if err := auth.Browse(ctx, page); err != nil {
		fmt.Fprintf(u.out, "  It was not opened: %s\n", flat(err.Error()))
		return u.yesOrNo(ctx, openYourself)
	}
	fmt.Fprintln(u.out, "  If no page appears, open it yourself.")
	return true, nil
}

const openYourself = "Open the page yourself if you trust it. Have you opened it?"

// A field is a value to ask for.
type field struct {
	name, about string
	fallback    string // the value if the user just confirms, if hasDefault
	hasDefault  bool
	options     []option // what can be chosen; none: anything can be entered
	many        bool     // several values are entered, separated by commas
	secret      bool     // the input is not shown while it is typed
	required    bool
}

// confirm asks a question of this command that is answered by yes or no.
func (u *user) confirm(ctx context.Context, question string) (bool, error) {
	end, err := u.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	text, last := question, ""
	if at := strings.LastIndexByte(question, '\n'); at >= 0 {
		text, last = question[:at], question[at+1:]
	}
	fmt.Fprintln(u.out, message(text))
	return u.yesOrNo(ctx, last)
}

// value asks for one value.
func (u *user) value(ctx context.Context, f field) (answer string, err error) {
	end, err := u.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	err = u.ask(ctx, f, func(text string) error {
		answer = cmp.Or(text, f.fallback)
		if len(f.options) == 0 {
			return nil
		}
		chosen, err := choose(f.options, answer)
		answer = option{value: chosen}.text()
		return err
	})
	return answer, err
}

// yesOrNo reports whether the answer is y or yes. Anything else is a no.
func (u *user) yesOrNo(ctx context.Context, question string) (bool, error) {
	text, err := u.read(ctx, fmt.Sprintf("  %s [y/N] ", question), false)
	yes, _ := isYes(text)
	return yes, err
}

// decide asks a question until the answer is yes or no.
func (u *user) decide(ctx context.Context, shown string) (yes bool, err error) {
	for prompt := shown + " [y/n] "; ; prompt = "  Please answer y or n: " {
		text, err := u.read(ctx, prompt, false)
		if err != nil {
			return false, err
		}
		if yes, known := isYes(text); known {
			return yes, nil
		}
	}
}

// isYes reports whether a text means yes, and whether it means yes or no at all.
func isYes(text string) (yes, known bool) {
	switch strings.ToLower(text) {
	case "y", "yes":
		return true, true
	case "n", "no":
		return false, true
	default:
		return false, false
	}
}

// ask asks for a value until take accepts it. It passes "" for the default, or for nothing if that
// is allowed.
func (u *user) ask(ctx context.Context, f field, take func(text string) error) error {
	about := flat(f.name)
	switch {
	case strings.HasPrefix(f.about, "("): // only what the field takes
		about += " " + flat(f.about)
	case f.about != "":
		about += " - " + flat(f.about)
	}
	fmt.Fprintf(u.out, "  %s\n", about)
	showOptions(u.out, f.options)
	prompt := "  > "
	switch {
	case f.hasDefault:
		prompt = fmt.Sprintf("  [%s] > ", flat(f.fallback))
	case !f.required:
		prompt = "  (optional) > "
	}
	for {
		text, err := u.read(ctx, prompt, f.secret)
		if err != nil {
			return err
		}
		if text == "" && !f.hasDefault && f.required {
			fmt.Fprintln(u.out, "  An answer is required; Ctrl-D gives none.")
			continue
		}
		err = take(text)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fmt.Fprintf(u.out, "  %s\n", flat(err.Error()))
	}
}

// read shows a prompt and reads a line from the terminal. What is typed of a
// secret is not shown, from before the prompt appears.
func (u *user) read(ctx context.Context, prompt string, secret bool) (string, error) {
	readLine := u.readLine
	if file, ok := u.in.(*os.File); ok && secret {
		state, err := term.MakeRaw(int(file.Fd()))
		if err != nil {
			return "", err
		}
		defer func() { _ = term.Restore(int(file.Fd()), state) }() // also when the reading is left behind
		screen := struct {
			io.Reader
			io.Writer
		}{u.in, u.out}
		readLine = func() (string, error) { return term.NewTerminal(screen, "").ReadPassword(prompt) }
	} else {
		fmt.Fprint(u.out, prompt)
	}
	if u.pending == nil {
		pending := make(chan typedLine, 1)
		u.pending = pending
		go func() {
			line, err := readLine()
			pending <- typedLine{line, err}
		}()
	}
	select {
	case got := <-u.pending:
		u.pending = nil
		if got.err != nil {
			fmt.Fprintln(u.out)
		}
		return strings.TrimSpace(got.line), got.err
	case <-ctx.Done():
		fmt.Fprintln(u.out)
		return "", context.Cause(ctx)
	}
}

// readLine reads byte by byte: what follows belongs to the next question.
func (u *user) readLine() (string, error) {
	var text bytes.Buffer
	for one := make([]byte, 1); ; {
		n, err := u.in.Read(one)
		switch {
		case n == 1 && one[0] == '\n':
			return text.String(), nil
		case n == 1 && text.Len() < 1<<20:
			text.WriteByte(one[0])
		case err != nil:
			return "", err
		}
	}
}
