package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/bowline-mcp/bowline/conn"
)

// readWitness counts how often each call was executed, by what the children have
// written.
func readWitness(path string) (map[int64]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return countLines(file)
}

func countLines(from io.Reader) (map[int64]int, error) {
	executed := make(map[int64]int)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		number, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("witness: %w", err)
		}
		executed[number]++
	}
	return executed, lines.Err()
}

// audit holds what callers were told against what was executed.
func audit(told map[int64]account, executed map[int64]int) error {
	wrong := make(map[string][]int64)
	for number, how := range told {
		if what := contradiction(how, executed[number]); what != "" {
			wrong[what] = append(wrong[what], number)
		}
	}
	for number := range executed {
		if _, made := told[number]; !made {
			wrong["executed, and never made"] = append(wrong["executed, and never made"], number)
		}
	}
	var errs []error
	for what, numbers := range wrong {
		errs = append(errs, fmt.Errorf("witness: %d calls were %s, for instance call %d", len(numbers), what, numbers[0]))
	}
	return errors.Join(errs...)
}

// contradiction is what is wrong with a call that was executed so many times
// and whose caller was told how it ended; empty when nothing is.
func contradiction(told account, times int) string {
	switch {
	case times > 1:
		return "executed more than once"
	case told.delivery == conn.NotSent && times > 0:
		return "told not to be sent, and executed"
	case told.cause == conn.Answered && times == 0:
		return "answered, and not executed"
	default:
		return ""
	}
}
