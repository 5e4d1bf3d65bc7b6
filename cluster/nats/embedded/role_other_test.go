//go:build !unix

package embedded

func playRole() {}
