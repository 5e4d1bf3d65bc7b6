package main

import (
	"errors"
	"fmt"
)

// nothingLeft closes the books, and looks for what is left over.
func (f *fleet) nothingLeft() error {
	f.print("\n7. the books")
	f.print("%v", f.books)
	executed, abandoned := f.tools.executed.Load(), f.tools.abandoned.Load()
	f.print("   %s executed by the server, of which %s for callers that were gone", count(int(executed)), count(int(abandoned)))
	wrong := []error{f.books.balance(statsOf(f.sessions()))}
	if answered := int64(f.books.answered()); executed-abandoned != answered {
		wrong = append(wrong, fmt.Errorf("books: %d calls executed, %d of them for nobody, and %d answered", executed, abandoned, answered))
	}
	goroutines := settledGoroutines(f.before.goroutines)
	f.print("   goroutines: %d before, %d after", f.before.goroutines, goroutines)
	if leaked := goroutines - f.before.goroutines; leaked > 0 {
		wrong = append(wrong, fmt.Errorf("%d goroutines are left", leaked))
	}
	return errors.Join(wrong...)
}
