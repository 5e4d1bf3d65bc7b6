package peers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"syscall"
)

// witness runs a command on its own standard input and output. It sends the
// command's standard error, and then how the command ended, to an address. So a
// test sees how a server ends, even if a client started it.
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

var hasEnded = regexp.MustCompile(ended + "(.*)")

// A watch is the listener of one witness.
type watch struct {
	listener *net.TCPListener
	told     *told // nil before the first await
}

func newWatch() (*watch, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	return &watch{listener: listener}, nil
}

// command returns a command that runs the server under the witness.
func (w *watch) command(peer string, server []string) []string {
	return append([]string{peer, "witness", w.listener.Addr().String()}, server...)
}

func (w *watch) await(ctx context.Context, text *regexp.Regexp) ([]string, error) {
	if w.told == nil {
		deadline, _ := ctx.Deadline()
		w.listener.SetDeadline(deadline)
		stream, err := w.listener.Accept()
		if err != nil {
			return nil, err
		}
		w.told = newTold(stream)
	}
	return w.told.await(ctx, text)
}

// end waits until the server has ended. Its client ends it.
func (w *watch) end(ctx context.Context) (string, error) {
	said, err := w.await(ctx, hasEnded)
	if err != nil {
		return "", err
	}
	return said[1], nil
}

func (w *watch) close() {
	w.listener.Close()
	if w.told != nil {
		w.told.stream.Close()
	}
}
