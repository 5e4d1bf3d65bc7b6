package guide

import (
	"go/constant"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// TestLimitsAreFresh compares docs/limits.md with the comments of the options, and their
// defaults with the code. With -update it rewrites the page.
//
// Guarantees: G-0083.13
func TestLimitsAreFresh(t *testing.T) {
	want, problems, err := Limits(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	testenv.Page(t, filepath.Join(root, "docs", "limits.md"), want, *update)
}

// What the guide says of limits is what the page of limits says.
func TestGuideSaysTheLimitsOfAGateway(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "guide", "up.md"))
	if err != nil {
		t.Fatal(err)
	}
	guide, _, _ := strings.Cut(string(text), "## In your own program")
	_, guide, _ = strings.Cut(guide, "## Limits")
	for _, b := range gatewayBounds {
		p, err := parsePackage(filepath.Join(root, filepath.FromSlash(b.dir)))
		if err != nil {
			t.Fatal(err)
		}
		value, _ := constant.Int64Val(constant.ToInt(p.eval(p.consts[b.name])))
		switch b.name {
		case "warmUp", "longestWait", "DefaultMax", "MaxEntries", "MaxBytes", "MaxEntry":
			if !strings.Contains(guide, b.of.print(value)) {
				t.Errorf("up.md does not say %s for %s", b.of.print(value), b.what)
			}
		}
	}
}

// TestDefaultsAreFoundInTheCode checks that defaults are found in the code at all.
func TestDefaultsAreFoundInTheCode(t *testing.T) {
	for dir, want := range map[string]map[string]int64{
		"conn":                 {"Tuning.RequestTimeout": 30e9, "Tuning.MaxHeld": 64 << 20, "Tuning.MaxMalformed": 10_000},
		"transport/streamable": {"HandlerOptions.MaxSessions": 10_000, "HandlerOptions.SessionIdle": 30 * 60e9},
		"features/server":      {"AskingOptions.Expiry": 600e9, "TaskOptions.MaxRunning": 1024},
		"supervisor":           {"Options.Intensity": 3, "ChildSpec.Shutdown": 5e9},
	} {
		p, err := parsePackage(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range want {
			if got, _ := constant.Int64Val(constant.ToInt(p.presets[field])); p.presets[field] == nil || got != value {
				t.Errorf("%s %s: got %v, want %d", dir, field, p.presets[field], value)
			}
		}
	}
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		text     string
		value    int64
		duration bool
		want     bool
	}{
		{"30 s", 30e9, true, true},
		{"one hour", 3600e9, true, true},
		{"24 hours", 24 * 3600e9, true, true},
		{"3 s", 30e9, true, false},
		{"130 s", 30e9, true, false},
		{"16 MiB", 16 << 20, false, true},
		{"16,384; a peer", 16_384, false, true},
		{"1024", 1024, false, true},
		{"1024", 1000, false, false},
	} {
		if got := states(c.text, constant.MakeInt64(c.value), c.duration); got != c.want {
			t.Errorf("%q states %d: %v", c.text, c.value, got)
		}
	}
}
