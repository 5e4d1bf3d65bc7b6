// Package testenv is what TestMain functions do before the tests run: for test binaries that start
// themselves again, as servers or nodes, and for tests that wait.
package testenv

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// variable contains the path of the test binary whose tests run. A process that it starts
// inherits the variable.
const variable = "BOWLINE_TESTS_OF"

// Once ends the process with status 2 if a test of this binary has started it. TestMain
// calls it when it has found no role for the process, before it runs the tests: otherwise
// each process whose role was lost on its way would run all tests, and start more of them.
// A child whose role is to run a broken test does not call it.
func Once() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if os.Getenv(variable) == self && !slices.Contains(os.Args, "-test.fuzzworker") { // go test -fuzz starts these
		fmt.Fprintf(os.Stderr, "a test has started %s again, without a role: its tests do not run\n", self)
		os.Exit(2)
	}
	if err := os.Setenv(variable, self); err != nil {
		panic(err)
	}
}

// hangLimit is how long a test waits for what never comes: far more than anything takes on any machine.
const hangLimit = time.Minute

// Within calls f, and ends the test if f has not returned in a minute. What says what the test waits for. It is for tests in real time,
// which would otherwise end with the time of their package, and not say why.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	limit := time.NewTimer(hangLimit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Fatalf("waited for a minute: %s", what)
	}
}
