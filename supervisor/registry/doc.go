// Package registry finds Conns by name. It serves any number of supervisors in
// one process, as Elixir's Registry does with unique keys.
//
//	names := registry.New(registry.Options{})
//	s := supervisor.New(supervisor.Options{Registry: names}) // registers every Conn it runs
//	...
//	c, found := names.Lookup("weather")
//
// A name belongs to at most one Conn; a Conn may have several names. A Conn that
// has closed for good loses its names: nobody finds it any more, and the names are
// free. The Registry has no goroutine to watch for that. It notices a closed Conn
// when Register, Lookup, All or Len comes across it. Whoever runs a Conn should
// call Unregister, which frees the name immediately; a supervisor does so.
//
// A [Store] decides whether a name is free. The default, a [Local], knows this
// process only. A Store that several processes share gives a name to one of them
// at a time, and may take it back, for example when a lease expires. Lookup then
// no longer finds the Conn, watchers are told, and Options.OnLost can stop it.
//
// # Guarantees
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
