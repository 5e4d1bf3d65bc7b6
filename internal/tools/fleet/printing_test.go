package main

import (
	"strings"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	drawn := histogram([]time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second})
	rows := strings.Split(drawn, "\n")
	if len(rows) != histogramRows {
		t.Fatalf("%d rows:\n%s", len(rows), drawn)
	}
	wide, half := strings.Repeat("#", histogramWidth), strings.Repeat("#", histogramWidth/2)
	for i, want := range map[int]string{0: wide + " 2", 1: " 0", 3: half + " ", histogramRows - 1: half + " "} {
		if !strings.Contains(rows[i], want) {
			t.Errorf("row %d is %q, want %q in it", i, rows[i], want)
		}
	}
}

func TestHistogramOfLittle(t *testing.T) {
	if drawn := histogram(nil); drawn != "" {
		t.Errorf("no times: %q", drawn)
	}
	if drawn := histogram([]time.Duration{5 * time.Second, 5 * time.Second}); strings.Count(drawn, "\n") != 0 || !strings.HasSuffix(drawn, " 2") {
		t.Errorf("equal times: %q", drawn)
	}
}

func TestMilestones(t *testing.T) {
	got := milestones([]time.Duration{3 * time.Second, time.Second, 2 * time.Second, 9 * time.Second})
	if want := "the first after 1s, half after 2s, all after 9s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestAllocatorIsOfOurs(t *testing.T) {
	for name, want := range map[string][2]string{
		"conn.(*core).emit":               {"conn", "(*core).emit"},
		"features/client.(*Client).start": {"features/client", "(*Client).start"},
		"golang.org/x/sys/unix.Waitid":    {"golang.org/x/sys/unix", "Waitid"},
		"runtime.main":                    {"runtime", "main"},
		"transport/inmem.Pipe":            {"transport/inmem", "Pipe"},
		"main.each[...].func1":            {"main", "each[...].func1"},
		"a name without a package":        {"a name without a package", "a name without a package"},
	} {
		if pkg, function := split(name); pkg != want[0] || function != want[1] {
			t.Errorf("%s is %q of %q", name, function, pkg)
		}
	}
}
