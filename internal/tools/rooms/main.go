// Command rooms measures how a package is laid out: how long its code and its functions are, how much is explained, what it exports, and
// which of its files form one knot.
//
//	go run ./internal/tools/rooms                    every package of the repository
//	go run ./internal/tools/rooms ./conn             one of them
//	go run ./internal/tools/rooms -from <commit>     beside an earlier commit
//	go run ./internal/tools/rooms -check             compare with limits.txt; CI does that
//	go run ./internal/tools/rooms -update            write what is better into limits.txt
//
// A line is code if it holds a token, and a comment if it holds nothing else. Generated files and tests count nowhere. A
// file needs another one if it uses a name, method or field that the other declares at package level; the
// largest set of files of which each needs all others, directly or not, is the largest cycle. In a package with files that begin with
// //bowline:pure, these are a room of their own, the core, and the other files are the shell.
//
// Cycle, p90 and maximum may only fall, and comments only rise. Lines and exported names are printed with their change.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(1)
	}
}

// limitsFile is where the limits are, below the root of the repository.
const limitsFile = "internal/tools/rooms/limits.txt"

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("rooms", flag.ContinueOnError)
	from := flags.String("from", "", "also measure an earlier `commit`, in a clone, and print what has changed")
	check := flags.Bool("check", false, "fail if a room is beyond its limits")
	update := flags.Bool("update", false, "write the limits of what is measured, where that is better")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"work"} // the packages of every module of go.work
	}
	rooms, err := load(".", patterns)
	if err != nil {
		return err
	}
	if *from != "" {
		earlier, err := loadAt(*from, patterns)
		if err != nil {
			return fmt.Errorf("at %s: %w", *from, err)
		}
		printChanges(out, earlier, rooms)
		return nil
	}
	if !*check && !*update {
		printRooms(out, rooms)
		return nil
	}
	limits, err := readLimits(limitsFile)
	if err != nil {
		return err
	}
	broken := limits.check(rooms, out)
	if *update {
		return limits.write(limitsFile, rooms, len(flags.Args()) == 0)
	}
	if len(broken) > 0 {
		return fmt.Errorf("beyond the limits of %s:\n%s", limitsFile, strings.Join(broken, "\n"))
	}
	return nil
}

// loadAt measures a commit in a clone, which is removed again.
func loadAt(commit string, patterns []string) (rooms []room, err error) {
	folder, err := os.MkdirTemp("", "rooms")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	clone := filepath.Join(folder, "clone")
	for _, command := range [][]string{
		{"git", "clone", "--quiet", "--no-checkout", ".", clone},
		{"git", "-C", clone, "checkout", "--quiet", commit},
	} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, output)
		}
	}
	return load(clone, patterns)
}

const heads = "| Room | Files | Code | Comments per line | Functions p50 / p90 / max | Largest cycle: files | its code | Exported |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"

func printRooms(out io.Writer, rooms []room) {
	fmt.Fprint(out, heads)
	for _, r := range rooms {
		fmt.Fprintf(out, "| %s | %d | %d | %.2f | %d / %d / %d | %d | %d | %d |\n",
			r.name, r.files, r.code, r.perLine(), r.p50, r.p90, r.most, r.cycle, r.cycleCode, r.exported)
	}
	s := sum(rooms)
	fmt.Fprintf(out, "| all | %d | %d | %.2f | | | | %d |\n", s.files, s.code, s.perLine(), s.exported)
}

// printChanges prints the rooms that are not as they were.
func printChanges(out io.Writer, before, after []room) {
	earlier := make(map[string]room)
	for _, r := range before {
		earlier[r.name] = r
	}
	fmt.Fprint(out, heads)
	change := func(before, after int) string {
		if before == after {
			return fmt.Sprint(after)
		}
		return fmt.Sprintf("%d → %d", before, after)
	}
	line := func(b, a room) {
		if b == a {
			return
		}
		fmt.Fprintf(out, "| %s | %s | %s | %.2f → %.2f | %s / %s / %s | %s | %s | %s |\n", a.name, change(b.files, a.files), change(b.code, a.code), b.perLine(), a.perLine(),
			change(b.p50, a.p50), change(b.p90, a.p90), change(b.most, a.most), change(b.cycle, a.cycle), change(b.cycleCode, a.cycleCode), change(b.exported, a.exported))
	}
	for _, r := range after {
		line(earlier[r.name], r)
		delete(earlier, r.name)
	}
	for _, r := range before {
		if _, gone := earlier[r.name]; gone {
			line(r, room{name: r.name})
		}
	}
	s, t := sum(before), sum(after)
	s.name, t.name = "all", "all"
	line(s, t)
}

func sum(rooms []room) (s room) {
	for _, r := range rooms {
		s.files, s.code, s.comments, s.exported = s.files+r.files, s.code+r.code, s.comments+r.comments, s.exported+r.exported
	}
	return s
}

// sortRooms sorts rooms by name.
func sortRooms(rooms []room) {
	slices.SortFunc(rooms, func(a, b room) int { return strings.Compare(a.name, b.name) })
}
