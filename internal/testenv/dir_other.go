//go:build !linux

package testenv

func hasRoom(string) bool { return false }
