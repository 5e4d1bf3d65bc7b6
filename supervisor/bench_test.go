package supervisor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/supervisor"
)

// BenchmarkStartStop starts and stops one child while others run. Its time does not depend on how many
// there are.
func BenchmarkStartStop(b *testing.B) {
	for _, others := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("beside-%d", others), func(b *testing.B) {
			s := supervisor.New(supervisor.Options{})
			for range others {
				start(b, s, supervisor.ChildSpec{Run: idle})
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := start(b, s, supervisor.ChildSpec{ID: "one", Run: idle}).Stop(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			stop(b, s)
		})
	}
}
