// Package registry names connections, so that whoever knows a name finds the
// Conn: for one supervisor or several, in one process, as Elixir's Registry does
// with unique keys.
//
// A name has at most one Conn; a Conn may have several names. A Conn that is
// closed for good holds nothing: nobody finds it, and its name is free. No Conn
// costs a goroutine here, so the Registry learns of such an end when it comes
// across it: by Register, Lookup, All or Len. Whoever runs the Conn tells it
// earlier by Unregister.
//
// Whether a name is free is for a [Store] to say. The default, a [Local], knows
// this process. One that several processes share gives a name to one of them
// at a time, and may lose it again, as when a lease runs out: the Conn is then
// not found any more, watchers are told, and Options.OnLost can stop it.
//
// # What is guaranteed
//
//   - Of those that register a name at once, one has it, and the others are told.
//   - Only a Conn that has a name can give it up.
//   - What a watcher is told adds up to what the Registry has, whatever it missed.
//   - A watcher that is slow delays nobody, and costs memory for the names there
//     are, not for what happened.
//
// See ADR-0013. proptest.StoreContract checks a Store.
package registry
