package peers

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// A served is the process of a server over HTTP.
type served struct {
	*logReader
	command *exec.Cmd
	url     string
	port    string
}

// listening matches the lines with which servers report their port.
var listening = regexp.MustCompile(`serving http://.*:(\d+)/mcp|(?:listening|running|server) on port (\d+)`)

// serve runs a server that listens on a port; 0 means any. It passes the port
// as PORT in the environment, and in place of $PORT in the command.
func serve(ctx context.Context, command []string, port string) (*served, error) {
	var words []string
	for _, word := range command {
		words = append(words, strings.ReplaceAll(word, "$PORT", port))
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	s := &served{logReader: newLogReader(out), command: exec.Command(words[0], words[1:]...)}
	s.command.Env = append(os.Environ(), "PORT="+port)
	s.command.Stderr = in
	if err := s.command.Start(); err != nil {
		out.Close()
		return nil, err
	}
	found, err := s.await(ctx, listening)
	if err != nil {
		s.close()
		return nil, err
	}
	s.port = cmp.Or(found[1], found[2])
	s.url = "http://127.0.0.1:" + s.port + "/mcp"
	return s, nil
}

// end interrupts the server, and returns how it ended.
func (s *served) end(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { s.command.Process.Kill() })
	defer stop()
	if err := s.command.Process.Signal(os.Interrupt); err != nil {
		return "", err
	}
	s.command.Wait() // the state of the process says more than this error
	return s.command.ProcessState.String(), context.Cause(ctx)
}

// close kills the server, if it has not ended.
func (s *served) close() {
	s.command.Process.Kill()
	s.command.Wait()
	s.stream.Close()
}

// freePort returns a port that no process uses at present. No system gives such a port to a
// process that asks for any, so nobody else takes it before a server listens there.
func freePort() (string, error) {
	for tries := 0; ; tries++ {
		port := 20_000 + rand.IntN(10_000)
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			return strconv.Itoa(port), listener.Close()
		}
		if tries == 100 {
			return "", err
		}
	}
}
