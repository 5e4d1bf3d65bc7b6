package ask

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

type typedLine struct {
	line string
	err  error // io.EOF: the user closed the input
}

// Read shows a prompt and reads a line from the terminal. What is typed of a
// secret is not shown, from before the prompt appears.
func (u *User) Read(ctx context.Context, prompt string, secret bool) (string, error) {
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
func (u *User) readLine() (string, error) {
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
