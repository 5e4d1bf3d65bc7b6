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

// A memory is the memory of the process at one moment, in bytes.
type memory struct {
	heap       uint64 // the size of objects in the heap
	stacks     uint64 // the size of goroutine stacks
	held       uint64 // memory of the operating system that was not returned
	system     uint64 // the peak of the memory from the operating system
	resident   uint64 // the resident memory of the process; 0 if unknown
	goroutines int
}

// measureMemory first collects garbage and returns free memory. Pooled memory is freed
// by the second collection.
func measureMemory() memory {
	for range 3 {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{
		heap: m.HeapAlloc, stacks: m.StackInuse, held: m.Sys - m.HeapReleased, system: m.Sys,
		resident: resident(), goroutines: runtime.NumGoroutine(),
	}
}

// resident reads the resident memory from /proc, in pages.
func resident() uint64 {
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(content)
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
	parts []share // for a package: the shares of its functions, largest first
}

// profile splits the heap in use by package and function, largest first. What
// the standard library has allocated counts for the function of this module
// that called it.
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

// heapRecords returns the records of the garbage collection before the last one.
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

// scaled returns how many bytes a sample stands for, as in pprof: the larger an
// allocation is, the more likely it is sampled.
func scaled(r runtime.MemProfileRecord) float64 {
	if r.InUseObjects() == 0 || runtime.MemProfileRate <= 1 {
		return float64(r.InUseBytes())
	}
	size := float64(r.InUseBytes()) / float64(r.InUseObjects())
	return float64(r.InUseBytes()) / (1 - math.Exp(-size/float64(runtime.MemProfileRate)))
}

const module = "github.com/bowline-mcp/bowline/"

// allocator returns the innermost function of this module on a stack, and its
// package. If there is none, it returns the outermost function.
func allocator(stack []uintptr) (pkg, function string) {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		name, inModule := strings.CutPrefix(frame.Function, module)
		inModule = inModule || strings.HasPrefix(name, "main.")
		if inModule || !more {
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
