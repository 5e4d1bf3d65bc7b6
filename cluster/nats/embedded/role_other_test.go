//go:build !unix || !cluster

package embedded

func playRole() {}
