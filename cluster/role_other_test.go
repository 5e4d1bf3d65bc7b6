//go:build !unix

package cluster_test

func playRole() {}
