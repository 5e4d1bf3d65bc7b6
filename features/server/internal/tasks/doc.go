// Package tasks is the life of calls that are tasks, or may become one: of the extension of
// 2026-07-28 and of the experiment of 2025-11-25 (ADR-0032, ADR-0075).
//
// A Task is a call whose handler outlives its request. What it is lies in a Store, so that another
// process can report it; what it does is a Job, which only this process has. Tasks find it by its
// id: here while it runs, or else in the store, and at its node for a client of 2025-11-25. The
// methods of tasks/… are those of Tasks. What differs between the eras: the older one waits for the
// end in tasks/result, and asks there; the newer one polls, and answers with tasks/update.
//
// A task is saved before anybody learns its id, and after each change that a client may see, in the
// order of the changes. Once a client may have seen how it ended, that does not change any more,
// whatever the store does.
//
// Goroutines: everything may be used by any. A handler runs on a goroutine of its own, from Serve
// until it returns; Wait waits for it. The end of a task by its TTL runs on that of a timer. No
// mutex of a task is held while the store works, but making and saving: a slow store keeps only that task
// waiting.
package tasks
