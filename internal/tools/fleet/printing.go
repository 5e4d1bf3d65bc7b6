package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	histogramRows  = 12
	histogramWidth = 48
)

// histogram prints how many of the durations fall into each of a few equal
// intervals, with a row for each interval.
func histogram(durations []time.Duration) string {
	if len(durations) == 0 {
		return ""
	}
	first := slices.Min(durations)
	span := max((slices.Max(durations)-first)/histogramRows+1, time.Millisecond)
	var rows [histogramRows]int
	for _, d := range durations {
		rows[(d-first)/span]++
	}
	used, most := int((slices.Max(durations)-first)/span)+1, slices.Max(rows[:])
	var text strings.Builder
	for i, n := range rows[:used] {
		bar := strings.Repeat("#", (n*histogramWidth+most-1)/most)
		fmt.Fprintf(&text, "   %8.3f s  %-*s %d\n", (first + time.Duration(i)*span).Seconds(), histogramWidth, bar, n)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// milestones returns when the first, half and all of the durations were over.
func milestones(durations []time.Duration) string {
	if len(durations) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(durations))
	return fmt.Sprintf("the first after %v, half after %v, all after %v",
		round(sorted[0]), round(sorted[(len(sorted)-1)/2]), round(sorted[len(sorted)-1]))
}

// rate returns how long n events took, and how many that is per second.
func rate(n int, took time.Duration) string {
	return fmt.Sprintf("%v: %s a second", round(took), count(int(float64(n)/took.Seconds())))
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// count returns a number with thousands separators.
func count(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// phases runs phases until one fails. What follows a failed phase would only repeat its error.
func phases(ctx context.Context, all ...func(context.Context) error) error {
	for _, phase := range all {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A printer prints one line after the other. Phases print on one goroutine, so it has no lock.
type printer struct{ out io.Writer }

func (p printer) print(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }
