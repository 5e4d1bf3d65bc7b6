// Package audit keeps a trail of who has asked what of a gateway, in a file in which no record can be changed, left out or added unnoticed by somebody without
// its key. ADR-0099 has the format and what it proves.
//
//	trail, err := audit.Open("audit.jsonl", audit.Options{Key: key})
//	…
//	g := gateway.New(gateway.Options{Audit: trail.Write})
//	…
//	err = trail.Close()
//
// Verify reads a trail, and returns a *BrokenError with the first record that is wrong.
//
// # Goroutines
//
// A Trail has one, which writes. Write gives it a record, and waits for it only if Options say so. Close waits for it.
package audit
