package streamable

// An idleList contains idle links; the one that is idle longest is first. An idle link
// is in one list of the table and in one of its client. It stores its places in them
// itself, because it is added and removed with each request. The zero value is empty.
type idleList struct{ first, last *serverLink }

// An idlePlace is the place of a link in an idleList: between its neighbours.
type idlePlace struct{ before, after *serverLink }

// These say which of a link's two places a list uses.
const (
	ofTable = iota
	ofClient
)

// append adds a link that has just become idle.
func (d *idleList) append(l *serverLink, which int) {
	l.use.places[which].before = d.last
	if d.last == nil {
		d.first = l
	} else {
		d.last.use.places[which].after = l
	}
	d.last = l
}

// remove removes a link that is in the list.
func (d *idleList) remove(l *serverLink, which int) {
	at := &l.use.places[which]
	if at.before == nil {
		d.first = at.after
	} else {
		at.before.use.places[which].after = at.after
	}
	if at.after == nil {
		d.last = at.before
	} else {
		at.after.use.places[which].before = at.before
	}
	*at = idlePlace{}
}
