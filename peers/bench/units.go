package bench

import (
	"fmt"
	"strings"
)

// A unit writes a value with three digits.
type unit func(float64) string

// times is a ratio.
func times(v float64) string { return digits(v) + " ×" }

func count(v float64) string { return digits(v) }

func perSecond(v float64) string { return scaled(v, 1000, "/s", " k/s", " M/s") }

func size(v float64) string { return scaled(v, 1000, " B", " kB", " MB", " GB") }

// binarySize is of texts, whose sizes are powers of two.
func binarySize(v float64) string { return scaled(v, 1024, " B", " KiB", " MiB") }

func seconds(v float64) string { return scaled(v*1e6, 1000, " µs", " ms", " s") }

func percent(v float64) string { return digits(v*100) + " %" }

// patience is a time that was not waited for beyond a bound.
func patience(v float64) string {
	if v == timedOut.Seconds() || v == timedOutSoon.Seconds() { // see within
		return "> " + seconds(v)
	}
	return seconds(v)
}

// scaled takes the unit that leaves the fewest digits before the point.
func scaled(v, step float64, units ...string) string {
	at := 0
	for ; at < len(units)-1 && (v >= step || v <= -step); at++ {
		v /= step
	}
	return digits(v) + units[at]
}

func digits(v float64) string {
	places := 2
	switch {
	case v >= 99.5 || v <= -99.5:
		places = 0
	case v >= 9.95 || v <= -9.95:
		places = 1
	}
	text := fmt.Sprintf("%.*f", places, v)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" { // a difference that is too small to show
		return "0"
	}
	return text
}
