package peers

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// witness runs a command on its own standard input and output, and sends the
// command's standard error, and at last how it ended, to an address. So the end
// of a server is seen whoever has started it.
func witness(_ context.Context, arguments []string) error {
	told, err := net.Dial("tcp", arguments[0])
	if err != nil {
		return err
	}
	defer told.Close()
	command := exec.Command(arguments[1], arguments[2:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, told
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			command.Process.Signal(s)
		}
	}()
	err = command.Wait()
	fmt.Fprintf(told, "\n%s%v\n", ended, command.ProcessState)
	return err
}

const ended = "witness: "

// A watch is the listener of one witness.
type watch struct {
	listener *net.TCPListener
	told     net.Conn // nil before the first await
	lines    *bufio.Scanner
}

func newWatch() (*watch, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	return &watch{listener: listener}, nil
}

// command is the server, run by the witness that is watched.
func (w *watch) command(peer string, server []string) []string {
	return append([]string{peer, "witness", w.listener.Addr().String()}, server...)
}

// await reads on to a line with a text, and returns what follows the text. It
// fails at ctx's deadline, and when the witness has ended.
func (w *watch) await(ctx context.Context, text string) (string, error) {
	deadline, _ := ctx.Deadline()
	if w.told == nil {
		w.listener.SetDeadline(deadline)
		told, err := w.listener.Accept()
		if err != nil {
			return "", err
		}
		w.told, w.lines = told, bufio.NewScanner(told)
	}
	w.told.SetReadDeadline(deadline)
	var before []string
	for w.lines.Scan() {
		if _, rest, found := strings.Cut(w.lines.Text(), text); found {
			return rest, nil
		}
		before = append(before, w.lines.Text())
	}
	return "", fmt.Errorf("the server did not say %q but %q: %w", text, before, cmp.Or(w.lines.Err(), io.EOF))
}

func (w *watch) close() {
	w.listener.Close()
	if w.told != nil {
		w.told.Close()
	}
}
