package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit statuses, as the root's help explains them.
const (
	exitToolFailed  = 1
	exitUsage       = 2
	exitNoSession   = 3
	exitCallFailed  = 4
	exitInterrupted = 130
)

// A failure is an error with the exit status it gives the command.
type failure struct {
	status int
	err    error
	usage  bool // the command line is wrong: say how it is meant
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usageFailure is a command line that cannot be understood.
func usageFailure(err error) error {
	return &failure{status: exitUsage, err: err, usage: true}
}

// report tells of an error on standard error and returns the exit status. An
// interrupt explains whatever failed after it.
func report(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	if cmd.Context().Err() != nil {
		cmd.PrintErrln("bowline: interrupted")
		return exitInterrupted
	}
	cmd.PrintErrln("bowline: " + printable(err.Error()))
	failed := &failure{status: exitCallFailed}
	if errors.As(err, &failed) && failed.usage {
		cmd.PrintErrln(fmt.Sprintf("Usage: %s\nMore: %s --help", cmd.UseLine(), cmd.CommandPath()))
	}
	return failed.status
}
