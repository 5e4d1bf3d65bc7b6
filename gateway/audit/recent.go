package audit

import (
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// RecentRecords is how many records Recent returns at most.
const RecentRecords = 200

// recent keeps the newest records for those who look at them. Its zero value is ready.
type recent struct {
	mu      sync.Mutex
	records []Record // the oldest first; more than are shown, so that they are not moved for each new one
	changed wait.Changes
}

func (r *recent) add(record Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 2*RecentRecords {
		r.records = r.records[:copy(r.records, r.records[RecentRecords:])]
	}
	r.records = append(r.records, record)
	r.changed.Announce()
}

func (r *recent) read() (records []Record, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records[max(0, len(r.records)-RecentRecords):]), r.changed.Next()
}
