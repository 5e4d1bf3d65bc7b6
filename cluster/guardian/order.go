package guardian

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// marker is the first argument of a guardian's process. The number changes with the
// arguments, the descriptors and the messages of guardians, so that a program that was replaced
// while it ran does not misunderstand its successor.
const (
	marker  = markers + "1"
	markers = "__bowline_guardian_"
)

// isGuardian reports whether a process with these arguments, of which the first is its name, was
// started as a guardian, also as one of another version.
func isGuardian(args []string) bool { return len(args) > 1 && strings.HasPrefix(args[1], markers) }

// An order says what a guardian's process has to do: these are its arguments. Its descriptors
// from 3 on are the files of the server, then the pipe of the schedules, the pipe for the
// report, and for the inner guardian a pipe that ends with the outer one.
type order struct {
	role  string // outer or inner
	files int
	path  string   // the program of the server
	args  []string // with the name of the program
}

const (
	outer = "outer"
	inner = "inner"

	maxFiles = 1024
)

// arguments returns the arguments of a guardian's process, with its name.
func (o order) arguments(name string) []string {
	return append([]string{name, marker, o.role, strconv.Itoa(o.files), o.path}, o.args...)
}

// parseOrder reads the arguments of a guardian's process, without its name.
func parseOrder(args []string) (order, error) {
	if args[0] != marker {
		return order{}, fmt.Errorf("%s is not %s: the file of the program was replaced", args[0], marker)
	}
	args = args[1:]
	if len(args) < 4 {
		return order{}, errors.New("arguments are missing")
	}
	o := order{role: args[0], path: args[2], args: args[3:]}
	if o.role != outer && o.role != inner {
		return order{}, fmt.Errorf("the role is %q", o.role)
	}
	var err error
	if o.files, err = strconv.Atoi(args[1]); err != nil || o.files < 0 || o.files > maxFiles {
		return order{}, fmt.Errorf("the number of files is %q", args[1])
	}
	return o, nil
}
