// Package ask asks the person at the terminal: the questions of servers, inputs of an mcp.json, and
// those of this command, one at a time.
//
// A line is read on a goroutine of its own, because reading a terminal cannot be interrupted. Whoever
// asks waits for it or for the end of its context, and a line that comes later answers nothing.
// Without a terminal nobody is asked: questions of servers are declined.
package ask

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
)

// A User is the person at the terminal. Questions go to standard error and
// answers come from standard input, one question at a time.
type User struct {
	in      io.Reader
	out     io.Writer
	askLock chan struct{} // contains a token while no question is asked

	// pending is a line that a question has not waited for: reading a terminal
	// cannot be interrupted.
	pending chan typedLine

	Limit Timeout // the timeout of the call, which waits for the answer
}

// New returns the user who types into in and reads out. Nothing is read before a question is asked.
func New(in io.Reader, out io.Writer) *User {
	u := &User{in: in, out: out, askLock: make(chan struct{}, 1)}
	u.askLock <- struct{}{}
	return u
}

// IsPresent reports whether there is a user at a terminal.
func (u *User) IsPresent() bool { return render.IsTerminal(u.in) && render.IsTerminal(u.out) }

// begin waits until no other question is asked. A line that was
// typed after an earlier question was cancelled does not answer the next one.
func (u *User) begin(ctx context.Context) (end func(), err error) {
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
	u.Limit.pause()
	return func() {
		u.Limit.Resume()
		u.askLock <- struct{}{}
	}, nil
}

// A field is a value to ask for.
type field struct {
	name, about string
	fallback    string // the value if the user just confirms, if hasDefault
	hasDefault  bool
	options     []arguments.Option // what can be chosen; none: anything can be entered
	many        bool               // several values are entered, separated by commas
	secret      bool               // the input is not shown while it is typed
	required    bool
}

// Confirm asks a question of this command that is answered by yes or no.
func (u *User) Confirm(ctx context.Context, question string) (bool, error) {
	end, err := u.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	text, last := question, ""
	if at := strings.LastIndexByte(question, '\n'); at >= 0 {
		text, last = question[:at], question[at+1:]
	}
	fmt.Fprintln(u.out, render.Message(text))
	return u.yesOrNo(ctx, last)
}

// value asks for one value.
func (u *User) value(ctx context.Context, f field) (answer string, err error) {
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
		chosen, err := arguments.Choose(f.options, answer)
		answer = arguments.Option{Value: chosen}.Text()
		return err
	})
	return answer, err
}

// yesOrNo reports whether the answer is y or yes. Anything else is a no.
func (u *User) yesOrNo(ctx context.Context, question string) (bool, error) {
	text, err := u.Read(ctx, fmt.Sprintf("  %s [y/N] ", question), false)
	yes, _ := isYes(text)
	return yes, err
}

// decide asks a question until the answer is yes or no.
func (u *User) decide(ctx context.Context, shown string) (yes bool, err error) {
	for prompt := shown + " [y/n] "; ; prompt = "  Please answer y or n: " {
		text, err := u.Read(ctx, prompt, false)
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
func (u *User) ask(ctx context.Context, f field, take func(text string) error) error {
	about := render.Flat(f.name)
	switch {
	case strings.HasPrefix(f.about, "("): // only what the field takes
		about += " " + render.Flat(f.about)
	case f.about != "":
		about += " - " + render.Flat(f.about)
	}
	fmt.Fprintf(u.out, "  %s\n", about)
	arguments.ShowOptions(u.out, f.options)
	prompt := "  > "
	switch {
	case f.hasDefault:
		prompt = fmt.Sprintf("  [%s] > ", render.Flat(f.fallback))
	case !f.required:
		prompt = "  (optional) > "
	}
	for {
		text, err := u.Read(ctx, prompt, f.secret)
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
		fmt.Fprintf(u.out, "  %s\n", render.Flat(err.Error()))
	}
}
