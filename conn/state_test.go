package conn

import (
	"errors"
	"testing"
)

// The text of a Reason consists of its kind and its error, if it has them.
func TestReasonError(t *testing.T) {
	gone := errors.New("gone")
	for want, why := range map[string]Reason{
		"not started":       {},
		"link broken":       {Kind: LinkBroken},
		"link broken: gone": {LinkBroken, gone},
		": gone":            {Err: gone},
	} {
		if got := why.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
