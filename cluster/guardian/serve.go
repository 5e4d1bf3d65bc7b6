//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const supported = true

// What a guardian reports first.
const (
	reportStarted = 's' // and nothing more
	reportFailed  = 'f' // the number of the system's error in 4 bytes, 0 if it has none, and the text
)

const (
	exitMisused = 2 // the status of a guardian that nobody needs

	// wakeEvery is how often a guardian with a deadline looks at the clock: a timer stands
	// still while the machine sleeps.
	wakeEvery = time.Second

	// killEvery is how often a guardian looks for processes that it has to kill. It also does
	// so whenever one has ended.
	killEvery = 50 * time.Millisecond
)

// serve is the whole life of a guardian's process. The args are those after its name.
func serve(args []string) {
	o, err := parseOrder(args)
	if err == nil {
		err = o.checkPipes()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: the program starts its guardians itself: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(exitMisused)
	}
	runtime.LockOSThread() // the parent-death signal of the server comes when the thread ends that started it
	g := newProcess(o)
	if err := g.start(); err != nil {
		g.fail(err)
		os.Exit(exitMisused)
	}
	g.watch()
	g.say()
	endLike(g.family.ended)
}

// A process is a guardian's process. Everything in it happens on the main goroutine, but for
// the readers of its pipes.
type process struct {
	order
	files    []*os.File // of the server
	control  *os.File
	report   *os.File // closed by the end of the process
	lifeline *os.File // inner: ends with the outer guardian
	beat     *os.File // outer: the other end of the lifeline, closed by the end of the process

	family  family
	signals chan os.Signal // that ask the server to end
	deaths  chan os.Signal // SIGCHLD

	deadline schedule // the last that came in
	orphaned schedule // set by the end of the program or the outer guardian
	asked    bool
	why      string // what ended the server, for its standard error; "" if that is nobody's surprise
}

// checkPipes reports an error if this process has not inherited the pipes of a guardian.
func (o order) checkPipes() error {
	pipes := map[string]int{outer: 2, inner: 3}[o.role]
	for fd := 3 + o.files; fd < 3+o.files+pipes; fd++ {
		var about unix.Stat_t
		if err := unix.Fstat(fd, &about); err != nil || about.Mode&unix.S_IFMT != unix.S_IFIFO {
			return fmt.Errorf("descriptor %d is no pipe", fd)
		}
	}
	return nil
}

func newProcess(o order) *process {
	g := &process{order: o, deadline: never(), orphaned: never()}
	next := uintptr(3)
	inherit := func(name string) *os.File {
		unix.CloseOnExec(int(next))
		next++
		return os.NewFile(next-1, name)
	}
	for range o.files {
		g.files = append(g.files, inherit("file of the server"))
	}
	g.control, g.report = inherit("schedules"), inherit("report")
	if o.role == inner {
		g.lifeline = inherit("outer guardian")
	}
	return g
}

// start starts the server, or the inner guardian for it.
func (g *process) start() error {
	// Signals are caught, not ignored: the server would inherit that.
	g.signals, g.deaths = make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(g.signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	signal.Notify(g.deaths, unix.SIGCHLD)
	if err := adoptOrphans(); err != nil {
		return err
	}
	start := g.startServer
	if g.role == outer {
		start = g.startInner
	}
	if err := start(); err != nil {
		return err
	}
	// The server has them now, and its peer has to see when it closes them.
	for _, f := range append(g.files, os.Stdin, os.Stdout) {
		f.Close()
	}
	return nil
}

func (g *process) startInner() error {
	lifeline, beat, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lifeline.Close()
	g.beat = beat
	program, err := thisProgram()
	if err != nil {
		return err
	}
	o := g.order
	o.role = inner
	err = g.family.start(program, o.arguments(os.Args[0]), g.leaderAttributes(), append(g.files[:len(g.files):len(g.files)], g.control, g.report, lifeline))
	if err != nil {
		return err
	}
	g.control.Close()
	g.report.Close()
	return nil
}

// startServer starts the server if the first schedule, which was sent before this process was
// started, allows it still.
func (g *process) startServer() error {
	first, err := readSchedule(g.control)
	if err != nil {
		return fmt.Errorf("read the deadline: %w", err)
	}
	g.deadline = first
	now, err := clock()
	if err != nil {
		return err
	}
	if first.next(now, false) == 0 {
		return errors.New("its deadline passed before it ran")
	}
	if err := g.family.start(g.path, g.args, g.leaderAttributes(), g.files); err != nil {
		return err
	}
	_, _ = g.report.Write([]byte{reportStarted}) // it fails if the program has ended, which watch notices
	return nil
}

// fail reports that the server could not be started.
func (g *process) fail(err error) {
	var number syscall.Errno
	errors.As(err, &number)
	report := binary.BigEndian.AppendUint32([]byte{reportFailed}, uint32(number))
	_, _ = g.report.Write(append(report, err.Error()...)) // the program has ended if nobody reads
}

func readSchedule(from io.Reader) (schedule, error) {
	var b [scheduleSize]byte
	_, err := io.ReadFull(from, b[:])
	return decodeSchedule(b), err
}

// watch returns when the server and everything that the guardian can find of it have ended.
func (g *process) watch() {
	schedules, gone := make(chan schedule), make(chan string)
	if g.role == inner {
		go func() {
			for s, err := readSchedule(g.control); err == nil; s, err = readSchedule(g.control) {
				schedules <- s
			}
			gone <- "the program"
		}()
		go func() {
			_, _ = io.Copy(io.Discard, g.lifeline) // to the end, which is the message
			gone <- "the outer guardian"
		}()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait, done := g.act(); !done; wait, done = g.act() {
		timer.Reset(wait)
		select {
		case g.deadline = <-schedules:
		case what := <-gone:
			g.orphan(what)
		case <-g.signals:
			g.ask("")
		case <-g.deaths:
		case <-timer.C:
		}
	}
}

// orphan notes that the server has to end because what started it has.
func (g *process) orphan(gone string) {
	now, _ := clock() // zero, the past, if it fails
	g.orphaned = g.orphaned.sooner(byOrphan(now))
	g.ask(gone + " has ended")
}

// act does what is due. It returns how long nothing else is, or done when all processes have
// ended.
func (g *process) act() (wait time.Duration, done bool) {
	if g.family.reap(); g.family.leaderEnded {
		g.family.kill()
		return killEvery, g.family.reap()
	}
	if g.role == outer {
		return math.MaxInt64, false
	}
	now, err := clock()
	if err != nil {
		now = math.MaxInt64 // without a clock the deadline has passed
	}
	due := g.deadline.sooner(g.orphaned)
	if due.ask <= now || due.kill <= now {
		g.ask(map[bool]string{false: "its deadline has come"}[due.closing])
	}
	if due.kill <= now {
		g.family.kill()
		return killEvery, false
	}
	return min(due.next(now, g.asked), wakeEvery), false
}

func (g *process) ask(why string) {
	if !g.asked {
		g.asked, g.why = true, why
		g.family.ask()
	}
}

// say tells on standard error why the server was ended. It does not wait: the program may be
// stopped, and the pipe full.
func (g *process) say() {
	if g.why == "" {
		return
	}
	ready := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}
	if n, err := unix.Poll(ready, 0); n == 1 && err == nil {
		fmt.Fprintf(os.Stderr, "guardian: ended %q: %s\n", filepath.Base(g.path), g.why)
	}
}

// endLike ends this process as the server has ended.
func endLike(state unix.WaitStatus) {
	if state.Signaled() {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the server may have left a core file, which is enough
		dieOf(state.Signal())
		os.Exit(128 + int(state.Signal()))
	}
	os.Exit(state.ExitStatus())
}
