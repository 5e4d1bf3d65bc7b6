package protocol

import "slices"

// The revisions of the protocol that begin with a handshake.
const (
	Version20241105 = "2024-11-05"
	Version20250326 = "2025-03-26"
	Version20250618 = "2025-06-18"
	Version20251125 = "2025-11-25"
)

// LatestLegacy is the newest revision that initialize can negotiate.
const LatestLegacy = Version20251125

// LegacyVersions lists the revisions that initialize can negotiate, oldest first.
func LegacyVersions() []string {
	return []string{Version20241105, Version20250326, Version20250618, Version20251125}
}

// IsLegacy reports whether version is one that initialize can negotiate.
func IsLegacy(version string) bool { return slices.Contains(LegacyVersions(), version) }

// Negotiate is a server's answer to the version a client has asked for: the
// same if it is supported, the newest supported one otherwise, and none ("")
// when nothing is supported.
func Negotiate(requested string, supported []string) string {
	if len(supported) == 0 {
		return ""
	}
	if slices.Contains(supported, requested) {
		return requested
	}
	return slices.Max(supported) // dates sort by age
}
