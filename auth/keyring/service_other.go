//go:build !unix || darwin

package keyring

// missing returns why there is no key ring; "": the system has one.
func missing() string { return "" }

func isMissingService(error) bool { return false }
