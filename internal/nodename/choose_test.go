package nodename_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/internal/nodename"
)

// All choose the same name, and texts are spread. If a name goes, only its texts move.
func TestChoose(t *testing.T) {
	names := []string{"a", "b", "c"}
	counts := map[string]int{}
	for i := range 300 {
		text := fmt.Sprint("session ", i)
		chosen := nodename.Choose(text, slices.Values(names), nil)
		counts[chosen]++
		if again := nodename.Choose(text, slices.Values([]string{"c", "a", "b"}), []string{"d"}); again != chosen {
			t.Errorf("%s: %s or %s", text, chosen, again)
		}
		if other := nodename.Choose(text, slices.Values(names), []string{"b"}); other == "b" || chosen != "b" && other != chosen {
			t.Errorf("%s: %s is chosen, and without b %s", text, chosen, other)
		}
	}
	for _, name := range names {
		if counts[name] < 50 {
			t.Errorf("%s is chosen %d times", name, counts[name])
		}
	}
	if none := nodename.Choose("x", slices.Values(names), names); none != "" {
		t.Errorf("got %q of no names", none)
	}
}
