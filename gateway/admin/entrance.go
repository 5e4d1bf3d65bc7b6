package admin

import (
	"context"
	"sync"
	"time"
)

// An entrance is a way into a Door. It has its own seats for viewers, so that nobody who comes in by one can keep out
// those who come in by another, nor who has no token those who have it.
type entrance struct {
	*Door
	guard
	seats  chan struct{} // of those who know the token
	guests chan struct{} // seats of the others
	tries  chan struct{} // calls of the page
	drawn  renderings

	records drawnRecords
}

// look returns a Report with what is known of the other gateways of a cluster. Who waits gets what they say now.
func (d *Door) look(ctx context.Context, wait bool) Report {
	r := d.gateway.Report()
	of, is := d.gateway.(Clustered)
	if !is {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, nodesTime)
	defer cancel()
	if !wait {
		cancel()
	}
	r.Node, r.Nodes = of.Nodes(ctx)
	return r
}

// A rendering is the page as one kind of viewer sees it, from one Report.
type rendering struct {
	made    time.Time
	changed <-chan struct{} // closed when it is old
	report  Report
	head    part
	rows    []part
	foot    part              // what stands below the rows: waiting questions and clients
	single  map[string][]part // row and foot of the pages of single servers, by name, as far as somebody has asked for them
}

// renderings keeps the last rendering for those who know the token and for those who do not, so that many viewers cost as
// much as two.
type renderings struct {
	mu   sync.Mutex
	last [2]*rendering
}

// drawnRecords keeps the rows of the records that are shown: many viewers with many selections cost as much as one without any.
type drawnRecords struct {
	mu   sync.Mutex
	rows map[uint64]part // by the number of the record
}
