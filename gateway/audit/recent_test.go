package audit

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// The newest records are those of the file, over files and processes, and who waits for another one is told.
//
// Guarantees: G-0099.11
func TestRecent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	const all = 3*RecentRecords + 17
	for _, size := range []int64{-1, 1 << 14} { // in one file, and in files of some fifty records
		trail := open(t, path+fmt.Sprint(size), Options{MaxSize: size, Sync: true})
		_, changed := trail.Recent()
		if wait.IsClosed(changed) {
			t.Error("it has changed before there was a record")
		}
		for i := range all {
			trail.Write(context.Background(), Record{Method: "ping", ID: fmt.Sprint(i)})
		}
		records, _ := trail.Recent()
		if !wait.IsClosed(changed) || len(records) != RecentRecords {
			t.Fatalf("%d records, changed %v", len(records), wait.IsClosed(changed))
		}
		for i, r := range records {
			if want := all - RecentRecords + i; r.ID != fmt.Sprint(want) || r.Number != uint64(want)+2 {
				t.Fatalf("record %d is %+v", i, r)
			}
		}
		records[0].Method = "changed by who looks"
		if again, _ := trail.Recent(); again[0].Method != "ping" {
			t.Error("who looks has changed the records")
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, path+"-1", Options{})
	defer again.Close()
	records, _ := again.Recent()
	if n := len(records); n != RecentRecords || records[n-1].Event != EventStarted || records[n-2].Event != EventStopped || records[n-3].ID != fmt.Sprint(all-1) {
		t.Errorf("the next process has %d, the last ones %+v", n, records[n-3:])
	}
}
