package suggest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/suggest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAmong(t *testing.T) {
	names := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("tool%02d", i))
		}
		return names
	}
	for _, c := range []struct {
		name  string
		names []string
		want  string
	}{
		{"x", nil, "it has none"},
		{"ECHO", []string{"add", "echo"}, "did you mean echo? It has: echo, add"},
		{"elephant", []string{"add", "echo"}, "it has: "},
		{"tool07x", names(25), "did you mean tool07? It has: tool07, "},
		{"tool07x", names(25), " and 5 more"},
	} {
		if got := suggest.Among(c.name, c.names); !strings.Contains(got, c.want) {
			t.Errorf("%q among %q: %q, want %q", c.name, c.names, got, c.want)
		}
	}
}

func TestAmongLeavesTheNamesAlone(t *testing.T) {
	names := []string{"add", "echo"}
	suggest.Among("echo", names)
	if names[0] != "add" {
		t.Errorf("got %q", names)
	}
}

func TestNearest(t *testing.T) {
	flags := []string{"timeout", "init-timeout", "url", "json"}
	for name, want := range map[string]string{"timout": "timeout", "init-timout": "init-timeout", "jsn": "json", "verbosity": "", "uri": "url"} {
		if got, ok := suggest.Nearest(name, flags); got != want || ok != (want != "") {
			t.Errorf("nearest to %q: %q, %v, want %q", name, got, ok, want)
		}
	}
}
