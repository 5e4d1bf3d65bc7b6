package streamable

// An idleList holds idle links, idle longest first. A link is in one list of the table
// and in one of its client at a time, and knows its places in them itself: it comes and
// goes with each request. The zero value is empty.
type idleList struct{ first, last *serverLink }

// An idlePlace is where a link is in an idleList: between its neighbours.
type idlePlace struct{ before, after *serverLink }

// Which of the places of a link a list uses.
const (
	ofTable = iota
	ofClient
)

// append adds a link, as the one that became idle last.
func (d *idleList) append(l *serverLink, which int) {
	l.use.places[which].before = d.last
	if d.last == nil {
		d.first = l
	} else {
		d.last.use.places[which].after = l
	}
	d.last = l
}

// remove takes out a link that is in the list.
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
