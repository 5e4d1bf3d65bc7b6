package conn

import (
	"errors"
	"testing"
)

func TestReasonSaysWhatItKnows(t *testing.T) {
	gone := errors.New("gone")
	for want, why := range map[string]Reason{
		"not started":       {},
		"link broken":       {Kind: LinkBroken},
		"link broken: gone": {LinkBroken, gone},
		": gone":            {Err: gone},
	} {
		if got := why.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
