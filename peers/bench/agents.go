package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	sizeOfProgram = "size in bytes"
	compiling     = "processor s of compiling"
	wholeRun      = "run in s"
)

// agentProgram builds the program that does agentWork with one library alone, and runs it a few times. The standard library, which
// most machines have compiled before, is compiled beforehand.
func agentProgram(ctx context.Context, m *measurement) error {
	folder, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "agent")
	took, err := m.build(ctx, file)
	if err == nil && !m.quick {
		took, err = m.buildAgain(ctx, file)
	}
	if err != nil {
		return err
	}
	m.add("", compiling, took.Seconds())
	built, err := os.Stat(file)
	if err != nil {
		return err
	}
	m.add("", sizeOfProgram, float64(built.Size()))
	return m.runAgent(ctx, file)
}

// runAgent runs the program with a server of its own library.
func (m *measurement) runAgent(ctx context.Context, file string) error {
	server, err := serverCommand("stdio", m.name)
	if err != nil {
		return err
	}
	var runs []time.Duration
	for range pick(m, 15, 1) {
		one, err := timed(func() error { return run(exec.CommandContext(ctx, file, server...)) })
		if err != nil {
			return err
		}
		runs = append(runs, one)
	}
	m.add("", wholeRun, middleOf(runs))
	return nil
}

// buildAgain compiles all modules of the program: they get a flag of the compiler that changes nothing here, and that they have never had.
func (m *measurement) buildAgain(ctx context.Context, file string) (time.Duration, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", m.agent)
	modules, err := list.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(list.Args, " "), err)
	}
	var flags []string
	for _, module := range slices.Compact(slices.Sorted(strings.FieldsSeq(string(modules)))) {
		flags = append(flags, fmt.Sprintf("-gcflags=%s/...=-D=%d", module, time.Now().UnixNano()))
	}
	return m.build(ctx, file, flags...)
}

// build returns the processor time that it took.
func (m *measurement) build(ctx context.Context, file string, flags ...string) (time.Duration, error) {
	command := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", file, "-ldflags=-s -w"}, flags...), m.agent)...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := run(command); err != nil {
		return 0, err
	}
	return command.ProcessState.UserTime() + command.ProcessState.SystemTime(), nil
}

// run runs a program that says nothing unless it fails.
func run(command *exec.Cmd) error {
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command.Path, err, strings.TrimSpace(string(said)))
	}
	return nil
}
