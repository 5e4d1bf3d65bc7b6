package gateway_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// BenchmarkGuards calls a tool through a gateway in memory, without and with what guards the gateway of a team: a token that is checked, a policy with a rule and two personas, and a
// trail that is written to a file. The processor time is that of the whole process, with the writer of the trail in it; the difference between the two lines is what the guards cost.
func BenchmarkGuards(b *testing.B) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		b.Run("open/"+version, func(b *testing.B) { guarded(b, version, false) })
		b.Run("guarded/"+version, func(b *testing.B) { guarded(b, version, true) })
	}
}

func guarded(b *testing.B, version string, guards bool) {
	call := guardedCall(b, version, guards)
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
