package parts

import "testing"

// Credit that is granted just before its reader begins to wait wakes it.
func TestCreditBeforeItsReaderWaits(t *testing.T) {
	var c Credit
	more := c.untilMore() // there is none, so the reader is about to wait
	c.Grant(1)
	select {
	case <-more:
	default:
		t.Error("the reader would wait, although there is credit")
	}
	if c.untilMore() != nil {
		t.Error("there is no credit any more")
	}
}
