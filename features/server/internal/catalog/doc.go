// Package catalog contains what a server offers: things with names, in order, in pages, and found by a name or by a
// template that a URI fits.
//
// It owns the order and the cursors of lists. It knows nothing of clients: who asks passes a filter, so that
// a page has as many entries as its client may see. It also owns the limits of a URI that a client may name, and
// the guarantee that finding one takes time linear in its length.
//
// There are no goroutines. Any may use a Catalog; its lock is held only while its own maps are read, never while a
// filter runs, which is code of the program. A Pattern does not change.
package catalog
