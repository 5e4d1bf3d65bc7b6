package main

import (
	"errors"
	"fmt"
)

// nothingLeft closes the books, asks the witness, and looks for what is left
// over.
func (s *soak) nothingLeft() error {
	s.print("\n5. the books")
	s.print("%v", s.books)
	return errors.Join(s.books.balance(statsOf(s.sessions())), s.ledger.failed, s.compareWithWitness(), s.countStarts(), s.lookAround())
}

func (s *soak) compareWithWitness() error {
	executed, err := readWitness(s.witness)
	if err != nil {
		return err
	}
	s.print("   %s calls were executed, as the children have written", count(len(executed)))
	if made := s.ledger.numbers.Load(); made != int64(len(s.ledger.told)) {
		err = fmt.Errorf("books: %d calls were made, and the callers of %d were told how they ended", made, len(s.ledger.told))
	}
	return errors.Join(err, audit(s.ledger.told, executed))
}

// countStarts holds that each process that was killed was replaced, and no other.
func (s *soak) countStarts() error {
	starts, wrong := 0, []error(nil)
	for _, c := range s.children {
		n, err := c.close()
		starts, wrong = starts+n, append(wrong, err)
	}
	s.print("   processes: %s started, %s of them killed", count(starts), count(s.kills))
	if starts != len(s.children)+s.kills {
		wrong = append(wrong, fmt.Errorf("%d children and %d kills, but %d processes were started", len(s.children), s.kills, starts))
	}
	return errors.Join(wrong...)
}

// lookAround counts what must be gone, or as before.
func (s *soak) lookAround() error {
	var wrong []error
	if leaked := settledGoroutines(s.goroutines) - s.goroutines; leaked > 0 {
		wrong = append(wrong, fmt.Errorf("%d goroutines are left", leaked))
	}
	left, err := processes(s.mark)
	files, failed := openFiles()
	s.print("   left over: %d processes, %d zombies, %d descriptors more than before", left.marked, left.zombies, files-s.files)
	if left != (found{}) {
		wrong = append(wrong, fmt.Errorf("%d processes and %d zombies are left", left.marked, left.zombies))
	}
	if files > s.files {
		wrong = append(wrong, fmt.Errorf("%d descriptors are left", files-s.files))
	}
	return errors.Join(append(wrong, err, failed)...)
}
