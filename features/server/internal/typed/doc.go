// Package typed connects Go types with JSON: the schema of a type, the defaults of its fields, and how values of it
// are read and written, in one understanding of what the type is.
//
// It owns the rule that these agree: what fits the schema of a type can be decoded into it, and what is encoded from
// it fits the schema. A type for which that cannot be promised is refused with a panic, when a feature is
// added and not when it is called. Everything is a pure function of types and bytes, runs on the goroutine of its
// caller, and keeps nothing: no cache, since types are inspected once for each feature.
package typed
