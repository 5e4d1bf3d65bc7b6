package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
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

// elicit answers a form of a server. Without a terminal it declines.
func (u *user) elicit(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return u.answer(ctx, s, p, "Do you want to answer?", func() (*protocol.ElicitResult, error) {
		schema := readSchema(p.RequestedSchema)
		for {
			content, err := u.form(ctx, schema)
			if err != nil {
				return nil, err
			}
			if err := schema.validate(ctx, content); err != nil {
				fmt.Fprintln(u.out, message("that does not fit the question: "+err.Error()))
				continue
			}
			return client.Accept(content)
		}
	})
}

// elicitURL asks whether the user opens a page of a server. It shows the whole
// URL and never fetches it.
func (u *user) elicitURL(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	p.Message += "\n\n" + p.URL
	return u.answer(ctx, s, p, "Open the page yourself if you trust it. Have you opened it?", func() (*protocol.ElicitResult, error) {
		return client.Accept(nil)
	})
}

// answer shows a question, and returns what accept returns if the user agrees to
// answer. Closing the input dismisses the question.
func (u *user) answer(ctx context.Context, s *client.Session, p *protocol.ElicitParams, consent string, accept func() (*protocol.ElicitResult, error)) (*protocol.ElicitResult, error) {
	if !u.isPresent() {
		fmt.Fprintln(u.out, message("declined a question of the server, because there is no terminal: "+p.Message))
		return client.Decline()
	}
	end, err := u.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	fmt.Fprintln(u.out, message(fmt.Sprintf("the server %q asks:\n%s\n", s.Name(), p.Message)))
	var result *protocol.ElicitResult
	yes, err := u.yesOrNo(ctx, consent)
	switch {
	case err == nil && !yes:
		return client.Decline()
	case err == nil:
		result, err = accept()
	}
	if errors.Is(err, io.EOF) {
		return client.Dismiss()
	}
	return result, err
}

// A field is a value to ask for.
type field struct {
	name, about string
	fallback    string // the value if the user just confirms; "" if there is none
	options     []string
	secret      bool // the input is not shown while it is typed
	required    bool
}

// form asks for each property of a flat schema, in the schema's order.
func (u *user) form(ctx context.Context, s schema) (json.RawMessage, error) {
	members := make(map[string]json.RawMessage)
	for _, key := range s.order {
		property, _ := s.properties()[key].(object)
		f := fieldOf(key, property)
		f.required = s.requires(key)
		for {
			text, err := u.ask(ctx, f)
			if err != nil {
				return nil, err
			}
			if text == "" && !f.required {
				break // left out: the client fills in the default of the schema
			}
			members[key], err = pair{key: key, value: text}.parseAnswer(s.types(key))
			if err == nil {
				break
			}
			fmt.Fprintln(u.out, message(err.Error()))
		}
	}
	return protocol.Marshal(members)
}

// parseAnswer is typed, with the words that people type for booleans and lists.
func (p pair) parseAnswer(types []string) (json.RawMessage, error) {
	switch {
	case slices.Equal(types, []string{"boolean"}) && slices.Contains([]string{"y", "yes"}, strings.ToLower(p.value)):
		p.value = "true"
	case slices.Equal(types, []string{"boolean"}) && slices.Contains([]string{"n", "no"}, strings.ToLower(p.value)):
		p.value = "false"
	case slices.Equal(types, []string{"array"}) && !strings.HasPrefix(p.value, "["):
		var all []string
		for one := range strings.SplitSeq(p.value, ",") {
			all = append(all, strings.TrimSpace(one))
		}
		return protocol.Marshal(all)
	}
	return p.parse(types)
}

// fieldOf reads a property of a form.
func fieldOf(key string, property object) field {
	f := field{name: key}
	title, _ := property["title"].(string)
	description, _ := property["description"].(string)
	f.about = strings.Join(slices.DeleteFunc([]string{title, description}, func(s string) bool { return s == "" }), ": ")
	if value, ok := property["default"]; ok {
		f.fallback = fmt.Sprint(value)
	}
	from := property
	if items, ok := property["items"].(object); ok {
		from = items // several of them
		f.about = cmp.Or(f.about, "a list") + " (separate by commas)"
	}
	choices, _ := from["enum"].([]any)
	for _, keyword := range []string{"oneOf", "anyOf"} {
		titled, _ := from[keyword].([]any)
		for _, choice := range titled {
			if choice, ok := choice.(object); ok && choice["const"] != nil {
				choices = append(choices, choice["const"])
			}
		}
	}
	for _, choice := range choices {
		f.options = append(f.options, fmt.Sprint(choice))
	}
	return f
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
func (u *user) value(ctx context.Context, f field) (string, error) {
	end, err := u.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	return u.ask(ctx, f)
}

// yesOrNo reports whether the answer is y or yes.
func (u *user) yesOrNo(ctx context.Context, question string) (bool, error) {
	text, err := u.read(ctx, fmt.Sprintf("  %s [y/N] ", question), false)
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(text)), err
}

// ask asks for a value until it is one of the options, or there are none.
func (u *user) ask(ctx context.Context, f field) (string, error) {
	about := flat(f.name)
	if f.about != "" {
		about += " - " + flat(f.about)
	}
	fmt.Fprintf(u.out, "  %s\n", about)
	for i, option := range f.options {
		fmt.Fprintf(u.out, "    %d. %s\n", i+1, flat(option))
	}
	for {
		prompt := "  > "
		switch {
		case f.fallback != "":
			prompt = fmt.Sprintf("  [%s] > ", flat(f.fallback))
		case !f.required:
			prompt = "  (optional) > "
		}
		text, err := u.read(ctx, prompt, f.secret)
		if err != nil {
			return "", err
		}
		if number, err := strconv.Atoi(text); err == nil && 0 < number && number <= len(f.options) && !slices.Contains(f.options, text) {
			text = f.options[number-1]
		}
		switch text = cmp.Or(text, f.fallback); {
		case text == "" && f.required:
			fmt.Fprintln(u.out, "  An answer is required; Ctrl-D gives none.")
		default:
			return text, nil
		}
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
