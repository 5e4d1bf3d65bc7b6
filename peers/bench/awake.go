package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync/atomic"
)

// keepAwake starts a process for each processor, which runs whenever nothing else wants to. To wake a processor that sleeps
// takes longer than a call, above all in a virtual machine: a measurement on an idle machine is mostly one of that. Sleep is called in any case.
func keepAwake() (sleep func(), err error) {
	var ends []func()
	sleep = func() {
		for _, end := range ends {
			end()
		}
	}
	for i := range runtime.NumCPU() {
		command, err := serverCommand("awake", strconv.Itoa(i))
		if err != nil {
			return sleep, err
		}
		alive, says, wait, err := start(command)
		if err != nil {
			return sleep, err
		}
		ends = append(ends, func() {
			alive.Close()
			_ = wait() // it has measured nothing
		})
		if _, err := bufio.NewReader(says).ReadString('\n'); err != nil {
			return sleep, fmt.Errorf("a processor cannot be kept awake: %w", err)
		}
	}
	return sleep, nil
}

// stayAwake keeps one of the processors awake until its input ends.
func stayAwake(processor string, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	at, err := strconv.Atoi(processor)
	if err = errors.Join(err, runWhenIdle(at)); err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		io.Copy(io.Discard, in)
		over.Store(true)
	}()
	if _, err := fmt.Fprintln(out, "awake"); err != nil {
		return err
	}
	for !over.Load() {
	}
	return nil
}
