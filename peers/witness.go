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
	stderr, err := net.Dial("tcp", arguments[0])
	if err != nil {
		return err
	}
	defer stderr.Close()
	command := exec.Command(arguments[1], arguments[2:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, stderr
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
	fmt.Fprintf(stderr, "\n%s%v\n", ended, command.ProcessState)
	return err
}

const ended = "witness: "

var endedPattern = regexp.MustCompile(ended + "(.*)")

// A witnessListener is the listener of one witness.
type witnessListener struct {
	listener *net.TCPListener
	log      *logReader // nil before the first await
}

func newWitnessListener() (*witnessListener, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	return &witnessListener{listener: listener}, nil
}

// command returns a command that runs the server under the witness.
func (w *witnessListener) command(peer string, server []string) []string {
	return append([]string{peer, "witness", w.listener.Addr().String()}, server...)
}

func (w *witnessListener) await(ctx context.Context, text *regexp.Regexp) ([]string, error) {
	if w.log == nil {
		deadline, _ := ctx.Deadline()
		w.listener.SetDeadline(deadline)
		stream, err := w.listener.Accept()
		if err != nil {
			return nil, err
		}
		w.log = newLogReader(stream)
	}
	return w.log.await(ctx, text)
}

// end waits until the server has ended. Its client ends it.
func (w *witnessListener) end(ctx context.Context) (string, error) {
	found, err := w.await(ctx, endedPattern)
	if err != nil {
		return "", err
	}
	return found[1], nil
}

func (w *witnessListener) close() {
	w.listener.Close()
	if w.log != nil {
		w.log.stream.Close()
	}
}
