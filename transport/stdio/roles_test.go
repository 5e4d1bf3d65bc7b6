package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

const (
	// roleVariable makes the test binary a child with that role.
	roleVariable = "BOWLINE_STDIO_TEST_ROLE"

	// socketVariable is the socket at which a child or grandchild connects to the test,
	// besides its standard streams.
	socketVariable = "BOWLINE_STDIO_TEST_SOCKET"
)

// roleCommand is a Command whose child has the role. Without its settings, the race
// detector would delay each child's exit by a second.
func roleCommand(t testing.TB, role string, env ...string) *Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Command{Path: self, Env: append(env, "GORACE=atexit_sleep_ms=0", roleVariable+"="+role)}
}

func playRole(role string) {
	play, known := map[string]func(){
		"echo":              echo,
		"relay":             relay,
		"exit":              exitAtOnce,
		"situation":         printEnvironment,
		"wait":              waitForInput,
		"stubborn":          stubborn,
		"never reads":       neverReads,
		"leaves its group":  leaveGroup,
		"asked parent":      askedParent,
		"asked":             asked,
		"parent":            parent,
		"orphan":            orphan,
		"grandparent":       grandparent,
		"flood stderr":      floodStderr,
		"endless line":      endlessLine,
		"close stdout":      closeStdout,
		"burst":             burst,
		"killed in a frame": killedInAFrame,
		"server":            server,
		"writing server":    writingServer,
		"closing server":    closingServer,
		"echo server":       echoServer,
		"language server":   languageServer,
		"empty lines":       emptyLines,
	}[role]
	if !known {
		panic("unknown role " + role)
	}
	play()
}

func echo() { io.Copy(os.Stdout, os.Stdin) }

// relay connects its standard streams with the test's socket, and exits when either
// ends.
func relay() {
	conn := dialTest()
	go func() {
		io.Copy(conn, os.Stdin)
		os.Exit(0)
	}()
	io.Copy(os.Stdout, conn)
}

// printEnvironment prints its arguments, environment and directory.
func printEnvironment() {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	fmt.Println(os.Args[1:], dir, os.Getenv("BOWLINE_STDIO_TEST_INHERITED"), os.Getenv("BOWLINE_STDIO_TEST_ADDED"))
}

func exitAtOnce() {
	fmt.Fprintln(os.Stderr, "cannot read the configuration")
	os.Exit(3)
}

func waitForInput() { bufio.NewReader(os.Stdin).ReadString('\n') }

// stubborn ignores the end of its input and SIGTERM.
func stubborn() {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println(`"ready"`)
	waitForever()
}

// neverReads does not read its input.
func neverReads() {
	fmt.Println(`"ready"`)
	waitForever()
}

// parent leaves a child behind that holds all its streams open.
func parent() {
	orphan := exec.Command(os.Args[0])
	orphan.Env = append(os.Environ(), roleVariable+"=orphan")
	orphan.Stdin, orphan.Stdout, orphan.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := orphan.Start(); err != nil {
		panic(err)
	}
	waitForInput()
	os.Exit(7)
}

// askedParent has a child, which is asked to end, too, and ends after it.
func askedParent() {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=asked")
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		panic(err)
	}
	reportAsked(func() { child.Wait() })
}

func asked() { reportAsked(func() {}) }

// reportAsked waits for SIGTERM, calls a function, and says how often it was asked meanwhile.
func reportAsked(then func()) {
	conn, asked := dialTest(), make(chan os.Signal, 10)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Println(`"ready"`)
	<-asked
	then()
	fmt.Fprint(conn, strings.Repeat("asked\n", 1+len(asked)))
}

// grandparent owns a parent through a link, and is killed by the test.
func grandparent() {
	_, err := (&Command{Path: os.Args[0], Env: []string{roleVariable + "=parent"}}).Open(context.Background())
	if err != nil {
		panic(err)
	}
	waitForever()
}

func orphan() {
	signal.Ignore(syscall.SIGTERM)
	conn := dialTest()
	waitForever()
	conn.Close()
}

const floodSize = 10 << 20

func floodStderr() {
	line := strings.Repeat("x", 63) + "\n"
	for range floodSize / len(line) {
		os.Stderr.WriteString(line)
	}
	fmt.Println(`"done"`)
	waitForInput()
}

// endlessLine reports to the test when it gets SIGTERM.
func endlessLine() {
	conn := dialTest()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		conn.Write([]byte("asked"))
	}()
	go func() {
		waitForInput()
		conn.Write([]byte("asked"))
	}()
	for {
		if _, err := os.Stdout.WriteString(strings.Repeat("x", 4096)); err != nil {
			return
		}
	}
}

func closeStdout() {
	os.Stdout.Close()
	waitForever()
}

const burstFrames = 4000

// burst leaves its last frames in the pipe.
func burst() {
	out := bufio.NewWriterSize(os.Stdout, 32<<10)
	for i := range burstFrames {
		out.WriteString(burstFrame(i) + "\n")
	}
	out.Flush()
}

func burstFrame(i int) string { return fmt.Sprintf("%0200d", i) }

func killedInAFrame() {
	os.Stdout.WriteString("\"whole\"\n\"ha")
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		panic(err)
	}
	self.Kill()
	waitForever()
}

// server echoes frames, reports on standard error why it ends, and prints to standard
// output.
func server() {
	link, frames := openServer()
	fmt.Println("stray")
	for frame := range frames.received {
		link.Send(transport.Outbound{Frame: frame})
		link.Grant(transport.Main, 1)
	}
	link.Send(transport.Outbound{Frame: []byte(`"ended"`)})
	if err := link.Close(hangGuard); err != nil {
		panic(err)
	}
}

// writingServer writes to an output that no process reads, and reports the loss.
func writingServer() {
	link, frames := openServer()
	bufio.NewReader(os.NewFile(3, "start")).ReadString('\n')
	link.Send(transport.Outbound{Frame: []byte(`"lost"`)})
	loss := <-frames.lost
	fmt.Fprintln(os.Stderr, loss.Reason)
}

// closingServer closes its link while its input is open and being read, and then another one that writes to standard error.
func closingServer() {
	link, _ := openServer()
	err := link.Close(hangGuard)
	other, e := (&Server{In: io.NopCloser(strings.NewReader("")), Out: os.Stderr}).Open(context.Background())
	if err = errors.Join(err, e); err == nil {
		err = other.Close(hangGuard)
	}
	if err != nil {
		panic(err)
	}
	for _, f := range []*os.File{os.Stdin, os.Stderr} { // they stay open
		if _, err := f.Stat(); err != nil {
			panic(err)
		}
	}
	fmt.Println("restored")
}

func openServer() (transport.Link, *frames) {
	link, err := new(Server).Open(context.Background())
	if err != nil {
		panic(err)
	}
	f := newFrames()
	link.Bind(f)
	link.Grant(transport.Main, 1)
	return link, f
}

func dialTest() *net.UnixConn {
	conn, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		panic(err)
	}
	return conn.(*net.UnixConn)
}

// waitForever reads a pipe without a writer.
func waitForever() {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	r.Read(make([]byte, 1))
	runtime.KeepAlive(w)
}

// A testSocket is the socket at which a child or grandchild connects to the test.
type testSocket struct{ *net.UnixListener }

func listen(t testing.TB) testSocket {
	t.Helper()
	dir, err := os.MkdirTemp("", "bowline")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: dir + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetDeadline(time.Now().Add(hangGuard))
	t.Cleanup(func() { l.Close() })
	return testSocket{l}
}

func (s testSocket) variable() string { return socketVariable + "=" + s.Addr().String() }

func (s testSocket) accept(t testing.TB) *net.UnixConn {
	t.Helper()
	conn, err := s.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
