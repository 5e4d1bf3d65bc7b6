package audit

import (
	"slices"
	"sync"
)

// RecentRecords is how many records Recent returns at most.
const RecentRecords = 200

// recent keeps the newest records for those who look at them. Its zero value is ready.
type recent struct {
	mu      sync.Mutex
	records []Record      // the oldest first; more than are shown, so that they are not moved for each new one
	changed chan struct{} // closed by the next record; nil: nobody waits
}

func (r *recent) add(record Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 2*RecentRecords {
		r.records = r.records[:copy(r.records, r.records[RecentRecords:])]
	}
	r.records = append(r.records, record)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

func (r *recent) read() (records []Record, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return slices.Clone(r.records[max(0, len(r.records)-RecentRecords):]), r.changed
}
