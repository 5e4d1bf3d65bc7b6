// Package registry finds Conns by name. It serves any number of supervisors in
// one process, as Elixir's Registry does with unique keys.
//
// A name belongs to at most one Conn; a Conn may have several names. A Conn that
// has closed for good loses its names: it is not found, and the names are free.
// The Registry has no goroutine that would wait for that. It notices a closed
// Conn when Register, Lookup, All or Len comes across it. Unregister makes it
// known at once, and whoever runs a Conn should call it; a supervisor does.
//
// A [Store] decides whether a name is free. The default, a [Local], knows this
// process only. A Store that several processes share gives a name to one of them
// at a time, and may take it back, for example when a lease expires. The Conn is
// then not found any more, watchers see that, and Options.OnLost can stop it.
//
// # What is guaranteed
//
//   - When several callers register one name at the same time, one of them gets
//     it and the others get an error.
//   - Only the Conn that has a name can give it up.
//   - The changes that a watcher receives add up to the content of the Registry.
//   - A slow watcher delays nobody. The memory it needs depends on the number of
//     names, not on the number of changes.
//
// See ADR-0013. proptest.StoreContract checks an implementation of Store.
package registry
