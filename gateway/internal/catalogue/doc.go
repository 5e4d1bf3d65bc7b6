// Package catalogue knows what the servers of a gateway offer, also while they are away.
//
//	known, err := catalogue.Open("catalogue.json") // err says why it begins empty; known can be used all the same
//	known.Apply(plan, servers)                     // the file: who is there, and what they are called
//	changed := known.Learn(server, catalogue.Tools, catalogue.List{Entries: raw, At: now})
//	err = known.Save()
//
//	now := known.Snapshot()                        // immutable; one for the whole of a request
//	items, next, err := now.Page(catalogue.Tools, cursor, 1000)
//	tool, ok := now.Find(catalogue.Tools, "files__read")  // tool.Server and tool.Own say whom to ask, and for what
//	resource, ok := now.Resource("file:///a")             // by its URI, then by the templates
//
// Only the file, by Apply, and a server's own list, by Learn, remove an entry. A server that cannot be reached keeps what it
// last said, with its age. If its command or URL is changed, it begins with nothing.
//
// What servers say is checked entry by entry, since clients refuse a whole list for one that is wrong: an entry that is
// no tool is left out, and a notice says so (see Notices).
//
// Everything but a Catalogue and its file is pure. No package here has a goroutine of its own: a Catalogue may be used from
// every goroutine, and its functions run on that of their caller. Only Open and Save block, for the file.
//
// See docs/adr/0090-catalogue-and-names.md.
package catalogue
