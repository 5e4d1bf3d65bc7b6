package header

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNamesAndValues(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "x-team_1.~!#$%&'*+^`|": true, "": false, "a b": false, "a:": false, "é": false, "a\x7f": false, "a\n": false, `a"`: false,
	} {
		if IsName(name) != want {
			t.Errorf("%q is a name: %v", name, !want)
		}
	}
	for value, want := range map[string]bool{"": true, "a b\té": true, "a\r\nb": false, "\x00": false, "\u0085": false} {
		if IsValue(value) != want {
			t.Errorf("%q is a value: %v", value, !want)
		}
	}
}
