package gateway_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// BenchmarkGuards calls a tool through a gateway in memory, without and with what guards the gateway of a team: a token that is checked, a policy with a rule and two personas, and a
// trail that is written to a file. The processor time is that of the whole process, with the writer of the trail in it; the difference between open and guarded is what the guards
// cost. The others are guarded calls that are dearer, and two that are refused, which nobody may tell from each other.
func BenchmarkGuards(b *testing.B) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, row := range []struct {
			name string
			call guardedCall
		}{
			{"open", guardedCall{open: true}}, {"guarded", guardedCall{}}, {"sync", guardedCall{sync: true}},
			{"open, 1 MiB", guardedCall{open: true, size: 1 << 20}}, {"1 MiB", guardedCall{size: 1 << 20}},
			{"hidden", guardedCall{tool: "a__tool-9", refused: true}}, {"unknown", guardedCall{tool: "a__tool-x", refused: true}},
		} {
			row.call.version = version
			b.Run(row.name+"/"+version, func(b *testing.B) { guarded(b, row.call) })
		}
	}
}

func guarded(b *testing.B, c guardedCall) {
	call := c.prepare(b)
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		call()
	}
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
