package testenv

import (
	"flag"
	"testing"
)

var crowd = flag.Bool("crowd", false, "run the tests that count bytes or start crowds, which are skipped otherwise")

// Crowd skips a test that counts the bytes of a process, or starts a crowd of something, unless the
// flag -crowd is given: such a test is slow, and what runs beside it disturbs it. `.ci/run crowd`
// runs these tests, one package at a time and without the race detector.
func Crowd(t testing.TB) {
	t.Helper()
	if !*crowd {
		t.Skip("it needs the flag -crowd: .ci/run crowd") //nolint:forbidigo // a step of .ci/run runs it, and fails if one is left out
	}
}
