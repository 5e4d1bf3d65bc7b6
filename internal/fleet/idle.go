package main

import (
	"context"
	"fmt"
	"strings"
)

// Targets, for people to compare with.
const (
	targetBytes      = 12 << 10
	targetGoroutines = 2
)

// idle weighs the pairs while none of them does anything. By then a session has
// the goroutine that waits in its Run, and its server has none.
func (f *fleet) idle(context.Context) error {
	f.print("\n3. idle, after a garbage collection")
	settledGoroutines(f.before.goroutines + len(f.pairs))
	now := weigh()
	per := func(now, before uint64) float64 { return (float64(now) - float64(before)) / float64(len(f.pairs)) }
	heap, stacks := per(now.heap, f.before.heap), per(now.stacks, f.before.stacks)
	f.print("   %6.2f kB a pair on the heap", heap/1024)
	f.print("   %6.2f kB a pair of stacks", stacks/1024)
	f.print("   %6.2f kB a pair together; the target is %d kB", (heap+stacks)/1024, targetBytes>>10)
	f.print("   %6.2f kB a pair held by the runtime, with what it keeps for the next garbage", per(now.held, f.before.held)/1024)
	if now.resident > 0 {
		f.print("   %6.2f kB a pair of resident memory", per(now.resident, f.before.resident)/1024)
	}
	f.print("   %6.2f goroutines a pair; the target is %d", per(uint64(now.goroutines), uint64(f.before.goroutines)), targetGoroutines)
	f.printProfile()
	return nil
}

// printProfile says what the heap consists of, by whose code it was allocated.
func (f *fleet) printProfile() {
	if f.options.profile <= 0 {
		return
	}
	f.print("   the heap by who has allocated it, sampled every %d bytes, in kB a pair:", f.options.profile)
	for _, pkg := range profile() {
		if f.kilobytes(pkg) < 0.05 {
			return
		}
		var most []string
		for _, function := range pkg.parts[:min(4, len(pkg.parts))] {
			most = append(most, fmt.Sprintf("%s %.2f", function.name, f.kilobytes(function)))
		}
		f.print("   %6.2f  %-26s %s", f.kilobytes(pkg), pkg.name, strings.Join(most, ", "))
	}
}

// kilobytes are those of a share for each pair.
func (f *fleet) kilobytes(s share) float64 { return s.bytes / float64(len(f.pairs)) / 1024 }
