package testenv

import (
	"flag"
	"strconv"
)

// SideBySide lets n tests run at a time of those that call t.Parallel, unless -test.parallel says
// how many. By default as many run as there are processors, which is few for tests that wait
// more than they compute.
func SideBySide(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
