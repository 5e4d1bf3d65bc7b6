//go:build !linux

package bench

import "errors"

func runWhenIdle(int) error { return errors.New("only Linux has a priority below all others") }
