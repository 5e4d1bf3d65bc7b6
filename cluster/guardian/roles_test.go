//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Variables of the environment for the roles.
const (
	lockVariable   = "BOWLINE_GUARDIAN_TEST_LOCK"   // the file that a server locks
	untilVariable  = "BOWLINE_GUARDIAN_TEST_UNTIL"  // how far from now the role node moves a deadline
	socketVariable = "BOWLINE_GUARDIAN_TEST_SOCKET" // where a relay connects
	floodVariable  = "BOWLINE_GUARDIAN_TEST_FLOOD"  // if set, standard error is never empty
	serverVariable = "BOWLINE_GUARDIAN_TEST_SERVER" // the role of the server of a node
)

func playRole(guard *Guardian, role string) {
	map[string]func(){
		"locker":       func() { lockFile(); echo() },
		"family":       func() { lockFile(); startClinger(); flood(); echo() },
		"clinger":      cling,
		"stubborn":     func() { signal.Ignore(unix.SIGTERM); lockFile(); waitForever() },
		"relay":        relay,
		"exits":        func() { fmt.Fprintln(os.Stderr, "cannot read the configuration"); os.Exit(3) },
		"dies":         func() { die(os.Getenv("SIGNAL")) },
		"asked":        sayWhenAsked,
		"closes":       func() { lockFile(); startClinger(); os.Stdout.Close(); waitForever() },
		"hermit":       hermit,
		"files":        func() { readFile(3) },
		"closes file":  func() { os.NewFile(3, "file").Close(); echo() },
		"descriptors":  listDescriptors,
		"node":         func() { node(guard) },
		"echo server":  echoServer,
		"endless line": endlessLine,
	}[role]()
}

// roleCommand is a server with a role. Without its settings, the race detector would delay the
// exit of each process by a second.
func roleCommand(role string, env ...string) *stdio.Command {
	return &stdio.Command{Path: os.Args[0], Env: append(env, "GORACE=atexit_sleep_ms=0", roleVariable+"="+role)}
}

// lockFile locks the file for as long as a descriptor of it is open anywhere, and says so.
func lockFile() {
	f, err := os.OpenFile(os.Getenv(lockVariable), os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		fmt.Println(`"locked by another"`)
		os.Exit(75)
	}
	unix.FcntlInt(f.Fd(), unix.F_SETFD, 0) // a child inherits it
	fmt.Println(os.Getpid())
}

func echo() { io.Copy(os.Stdout, os.Stdin) }

// startClinger starts a process that leaves the group and session of its parent, ignores
// SIGTERM and its input, and keeps the lock.
func startClinger() {
	clinger := exec.Command(os.Args[0])
	clinger.Env = append(os.Environ(), roleVariable+"=clinger")
	clinger.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, err := clinger.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := clinger.Start(); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		panic(err)
	}
	fmt.Println(clinger.Process.Pid)
}

// flood writes to standard error all the time, if the test says so.
func flood() {
	if os.Getenv(floodVariable) == "" {
		return
	}
	go func() {
		for {
			os.Stderr.WriteString(strings.Repeat("x", 63) + "\n")
		}
	}()
}

func cling() {
	signal.Ignore(unix.SIGTERM, unix.SIGPIPE)
	fmt.Println("ready")
	waitForever()
}

func waitForever() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGUSR2) // so that waiting is no deadlock
	<-stop
}

// hermit ignores its input and SIGTERM, and closes the descriptor by which the kernel would
// kill the outer guardian together with the program.
func hermit() {
	signal.Ignore(unix.SIGTERM)
	unix.Close(3)
	lockFile()
	startClinger()
	waitForever()
}

func listDescriptors() {
	entries, err := os.ReadDir("/dev/fd")
	fmt.Printf("%q\n", fmt.Sprint(entries, err))
	echo()
}

// relay connects its standard streams with the test's socket.
func relay() {
	conn, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		panic(err)
	}
	go func() {
		io.Copy(conn, os.Stdin)
		os.Exit(0)
	}()
	io.Copy(os.Stdout, conn)
}

func die(name string) {
	dieOf(unix.SignalNum(name))
	waitForever()
}

// sayWhenAsked says each time when it is asked to end, and goes on.
func sayWhenAsked() {
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, unix.SIGTERM)
	fmt.Println(`"ready"`)
	for range asked {
		fmt.Println(`"asked"`)
	}
}

func readFile(fd uintptr) {
	b, err := io.ReadAll(os.NewFile(fd, "file"))
	fmt.Printf("%q\n", fmt.Sprint(string(b), err))
	echo()
}

func endlessLine() {
	lockFile()
	startClinger()
	for {
		if _, err := os.Stdout.WriteString(strings.Repeat("x", 4096)); err != nil {
			return
		}
	}
}

// node opens a guarded server, passes on what it says, and moves its deadline by SIGUSR1. Before that, the server
// has all the time that it needs to start.
func node(guard *Guardian) {
	length, err := time.ParseDuration(os.Getenv(untilVariable))
	if err != nil {
		panic(err)
	}
	renew := make(chan os.Signal, 1)
	signal.Notify(renew, unix.SIGUSR1)
	link, err := guard.Open(context.Background(), roleCommand(os.Getenv(serverVariable)), later())
	if err != nil {
		panic(err)
	}
	received := bindTo(link)
	fmt.Println(<-received.frames, <-received.frames)
	for range renew {
		link.Renew(time.Now().Add(length))
		fmt.Println("renewed")
	}
}

// echoServer answers requests until its input ends.
func echoServer() {
	link, err := new(stdio.Server).Open(context.Background())
	if err != nil {
		panic(err)
	}
	proptest.Echo(link)
}

// A heldLock is the lock file of a test.
type heldLock struct{ path string }

func newLock(t *testing.T) heldLock {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return heldLock{f.Name()}
}

func (l heldLock) variable() string { return lockVariable + "=" + l.path }

// awaitFree returns when nobody holds the lock any more, and how long that took. It fails the
// test after limit.
func (l heldLock) awaitFree(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	free := make(chan error, 1)
	go func() { free <- l.lock() }() // it ends at the latest when the holder does
	select {
	case err := <-free:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(limit):
		t.Fatalf("the lock is still held after %v", limit)
	}
	return time.Since(began)
}

// lock waits for the lock, and releases it.
func (l heldLock) lock() error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	return err
}

// isHeld reports whether somebody holds the lock.
func (l heldLock) isHeld(t *testing.T) bool {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}
