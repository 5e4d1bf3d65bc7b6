package guardian

import (
	"errors"
	"os"
	"runtime"
)

// A Guardian starts servers that end at a deadline; see the package documentation. Get one from
// Start. It may be used by any number of servers at the same time.
type Guardian struct {
	program string // what starts this program again
	err     error  // why that is unknown
}

// Start returns a Guardian for the servers of this program. Call it first in main, before
// anything reads os.Args, also in TestMain: in a process that was started as a guardian, it
// guards its server, ends the process when that has ended, and does not return.
//
// On Windows, and other systems that are not known to work, Start returns nil.
func Start() *Guardian {
	if !supported {
		return nil
	}
	if isGuardian(os.Args) {
		serve(os.Args[1:])
	}
	program, err := thisProgram()
	return &Guardian{program: program, err: err}
}

// thisProgram returns a path that starts the program of this process again. On Linux that is
// this same program, even if its file has been replaced.
func thisProgram() (string, error) {
	program, err := os.Executable()
	if err == nil && runtime.GOOS == "linux" {
		program = "/proc/self/exe"
	}
	return program, err
}

var errNone = errors.New("guardian: there is no Guardian: it comes from guardian.Start, which returns nil on this system")
