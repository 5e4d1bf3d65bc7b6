package main

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// A weight is what the process holds at one moment, in bytes.
type weight struct {
	heap       uint64 // objects
	stacks     uint64 // spans of goroutines' stacks
	held       uint64 // from the operating system, and not given back
	system     uint64 // ever taken from the operating system: the peak
	resident   uint64 // of the process; 0 where nobody says
	goroutines int
}

// weigh collects garbage first, and gives back what is free. What was pooled is
// garbage for the second collection.
func weigh() weight {
	for range 3 {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return weight{
		heap: m.HeapAlloc, stacks: m.StackInuse, held: m.Sys - m.HeapReleased, system: m.Sys,
		resident: resident(), goroutines: runtime.NumGoroutine(),
	}
}

// resident is read where Linux says it, in pages.
func resident() uint64 {
	said, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(said)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// settledGoroutines counts goroutines once there are no more than wanted, or
// after some seconds: those that have nothing left to do take a moment to end.
func settledGoroutines(wanted int) int {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 500 {
		if runtime.NumGoroutine() <= wanted {
			break
		}
		<-look.C
	}
	return runtime.NumGoroutine()
}
