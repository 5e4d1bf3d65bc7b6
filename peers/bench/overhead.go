package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// How much longer a watched call takes, with the processors that Go uses and with one.
const (
	beyond      = "p50 beyond an unwatched call in s"
	beyondOnOne = "p50 beyond an unwatched call, one processor, in s"
)

// telemetryCalls measures a client, and then how much longer its calls take than those of an
// unwatched client in the same process.
func telemetryCalls(ctx context.Context, m *measurement) error {
	if err := echoCalls(memoryCalls, 1, 64)(ctx, m); err != nil {
		return err
	}
	watched, err := memoryCalls(m, ctx)
	if err != nil {
		return err
	}
	other, err := contestantNamed(bowlineTyped)
	if err != nil {
		return err
	}
	unwatched, err := m.kept(other.memory(m.revision, serving{})(ctx))
	if err != nil {
		return err
	}
	measure := func(metric string) error {
		more, err := inTurns(ctx, pick(m, 2*time.Second, 50*time.Millisecond), watched.echo(echoText), unwatched.echo(echoText))
		m.add(callers(1), metric, more.Seconds())
		return err
	}
	if err := measure(beyond); err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return measure(beyondOnOne)
}

// inTurns makes calls of two kinds in turns, so that other work on the machine slows both of
// them down. It returns how much longer the median call of the first kind takes.
func inTurns(ctx context.Context, period time.Duration, first, second call) (time.Duration, error) {
	const callsInARow = 300
	var took [2][]time.Duration
	for end := time.Now().Add(period); time.Now().Before(end); {
		for kind, echo := range [...]call{first, second} {
			for range callsInARow {
				began := time.Now()
				if err := echo(ctx); err != nil {
					return 0, err
				}
				took[kind] = append(took[kind], time.Since(began))
			}
		}
	}
	for _, all := range took {
		slices.Sort(all)
	}
	return took[0][len(took[0])/2] - took[1][len(took[1])/2], nil
}
