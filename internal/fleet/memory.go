package main

import (
	"bytes"
	"cmp"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
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

// A share is the part of the heap that one package, or function, has allocated.
type share struct {
	name  string
	bytes float64
	parts []share // of a package: its functions, the largest first
}

// profile splits the heap in use by package and function, the largest first.
// What the standard library has allocated for one of ours is that one's.
func profile() []share {
	functions := make(map[string]map[string]float64)
	for _, record := range heapRecords() {
		pkg, function := allocator(record.Stack())
		if functions[pkg] == nil {
			functions[pkg] = make(map[string]float64)
		}
		functions[pkg][function] += scaled(record)
	}
	var packages []share
	for pkg, parts := range functions {
		whole := share{name: pkg}
		for function, bytes := range parts {
			whole.bytes += bytes
			whole.parts = append(whole.parts, share{name: function, bytes: bytes})
		}
		slices.SortFunc(whole.parts, largestFirst)
		packages = append(packages, whole)
	}
	slices.SortFunc(packages, largestFirst)
	return packages
}

func largestFirst(a, b share) int { return cmp.Compare(b.bytes, a.bytes) }

// heapRecords are of the garbage collection before the last.
func heapRecords() []runtime.MemProfileRecord {
	runtime.GC()
	runtime.GC()
	n, _ := runtime.MemProfile(nil, false)
	for {
		records := make([]runtime.MemProfileRecord, n+50)
		var ok bool
		if n, ok = runtime.MemProfile(records, false); ok {
			return records[:n]
		}
	}
}

// scaled is what a sample of allocations of one size stands for, as in pprof: an
// allocation is sampled with a likelihood that grows with its size.
func scaled(r runtime.MemProfileRecord) float64 {
	if r.InUseObjects() == 0 || runtime.MemProfileRate <= 1 {
		return float64(r.InUseBytes())
	}
	size := float64(r.InUseBytes()) / float64(r.InUseObjects())
	return float64(r.InUseBytes()) / (1 - math.Exp(-size/float64(runtime.MemProfileRate)))
}

const module = "github.com/bowline-mcp/bowline/"

// allocator is the innermost function of ours that was running, and its
// package; where there is none, the one that began it all.
func allocator(stack []uintptr) (pkg, function string) {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, module)
		ours = ours || strings.HasPrefix(name, "main.")
		if ours || !more {
			pkg, function = split(name)
			return pkg, function
		}
	}
}

// split takes a function's name apart: its package, and the rest.
func split(name string) (pkg, function string) {
	folder := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[folder:], '.')
	if dot < 0 {
		return name, name
	}
	return name[:folder+dot], name[folder+dot+1:]
}
