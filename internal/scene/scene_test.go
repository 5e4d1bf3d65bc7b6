package scene_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/scene"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each place has its lines in their order, with times from the beginning of the step. What is random has a name, and a long line keeps a hash.
func TestScene(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		play := func(end string) string {
			s := scene.New("Two places")
			s.Places("b")
			s.Mask(`id=(\w+)`, "id")
			s.Once(`\[.*?\]`, "list")
			s.Step("First")
			s.Mixed("b")
			s.Note("a", "id=x id=y")
			s.Note("b", "second")
			s.Note("b", "id=y [1,2] [3]")
			<-time.NewTimer(time.Second).C
			s.Note("a", "id=x [1,2] "+time.Now().Format(time.RFC3339))
			s.Step("Second")
			s.Sort()
			s.Note("b", "2")
			s.Note("b", "1")
			s.Note("a", strings.Repeat("é", 300)+end)
			return s.Text()
		}
		want := "# Two places\n\n## 1. First\n\nb id=id-1 list-1=[1,2] list-2=[3]\nb second\na id=id-2 id=id-1\na +1s id=id-2 list-1 T+1s\n" +
			"\n## 2. Second (at 1s)\n\nb 1\nb 2\na " + strings.Repeat("é", 200) + "… (601 bytes, "
		one, other := play("1"), play("2")
		if !strings.HasPrefix(one, want) || one == other {
			t.Errorf("got\n%s\nwant\n%s", one, want)
		}
	})
}
