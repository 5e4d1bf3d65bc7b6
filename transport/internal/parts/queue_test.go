package parts

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The queue behaves like a plain list of the same frames.
//
// Guarantees: G-0014.4, G-0014.5
func TestQueueAgreesWithAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Queue{Frames: rapid.IntRange(1, 20).Draw(t, "frames"), Bytes: rapid.IntRange(1, 100).Draw(t, "bytes")}
		var list []transport.Outbound
		var refused *transport.Outbound
		fits := func(o transport.Outbound) bool {
			sum := len(o.Frame)
			for _, held := range list {
				sum += len(held.Frame)
			}
			return len(list) == 0 || len(list) < q.Frames && sum <= q.Bytes
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				o := transport.Outbound{
					Tag:   transport.Tag(rapid.IntRange(0, 3).Draw(t, "tag")),
					Frame: make([]byte, rapid.IntRange(0, 60).Draw(t, "size")),
				}
				fitted := fits(o)
				if got := q.Push(o); got != fitted {
					t.Fatalf("Push returned %t", got)
				}
				if fitted {
					list = append(list, o)
				} else {
					refused = &o
				}
			},
			"drop": func(t *rapid.T) {
				n := rapid.IntRange(0, len(list)).Draw(t, "n")
				q.Drop(n)
				list = list[n:]
			},
			"relieved": func(t *rapid.T) {
				want := refused != nil && fits(*refused)
				if got := q.Relieved(); got != want {
					t.Fatalf("Relieved returned %t", got)
				}
				if want {
					refused = nil
				}
			},
			"": func(t *rapid.T) { checkHeld(t, &q, list) },
		})
	})
}

func checkHeld(t *rapid.T, q *Queue, list []transport.Outbound) {
	var tags []transport.Tag
	for i, o := range list {
		if got := q.At(i); got.Tag != o.Tag || len(got.Frame) != len(o.Frame) {
			t.Fatalf("got frame %d with the tag %d and %d bytes", i, got.Tag, len(got.Frame))
		}
		if o.Tag != 0 {
			tags = append(tags, o.Tag)
		}
	}
	if q.Len() != len(list) || !slices.Equal(q.Tags(), tags) {
		t.Fatalf("got %d frames %v, want %d %v", q.Len(), q.Tags(), len(list), tags)
	}
}

// A queue that is emptied keeps at most the slots that it has needed recently, or a
// few.
func TestSlotsAreKeptWhileTheyAreNeeded(t *testing.T) {
	var q Queue
	fill := func(frames int) (allocated float64) {
		return testing.AllocsPerRun(1, func() {
			for range frames {
				q.Push(transport.Outbound{})
			}
			q.Drop(frames)
		})
	}
	if fill(200); fill(200) != 0 {
		t.Error("the slots of a queue that is filled repeatedly are dropped, want them kept")
	}
	for range emptied / 4 {
		fill(2)
	}
	if fill(200) != 0 {
		t.Error("the slots are dropped after a short pause, want them kept")
	}
	for range emptied {
		fill(2)
	}
	if cap(q.slots) > few {
		t.Errorf("%d slots are kept for 2 frames, want fewer", cap(q.slots))
	}
}
