package protocol

import "slices"

// The revisions of the protocol. The legacy ones begin with a handshake, in the
// modern ones every request stands alone (2026-07-28 basic/versioning).
const (
	Version20241105 = "2024-11-05" // legacy
	Version20250326 = "2025-03-26" // legacy
	Version20250618 = "2025-06-18" // legacy
	Version20251125 = "2025-11-25" // legacy
	Version20260728 = "2026-07-28" // modern
)

const (
	LatestLegacy = Version20251125 // the newest revision that initialize can negotiate
	Latest       = Version20260728 // the newest revision
)

// Versions lists every revision, oldest first.
func Versions() []string { return append(LegacyVersions(), ModernVersions()...) }

// LegacyVersions lists the revisions that initialize can negotiate, oldest first.
func LegacyVersions() []string {
	return []string{Version20241105, Version20250326, Version20250618, Version20251125}
}

// IsLegacy reports whether version is one that initialize can negotiate.
func IsLegacy(version string) bool { return slices.Contains(LegacyVersions(), version) }

// ModernVersions lists the revisions that a request names in its _meta, oldest
// first.
func ModernVersions() []string { return []string{Version20260728} }

// IsModern reports whether version is a known one that a request names in its
// _meta.
func IsModern(version string) bool { return slices.Contains(ModernVersions(), version) }

// Negotiate is a server's answer to the version a client has asked for: the
// same if it is supported, the newest supported one otherwise, and none ("")
// when nothing is supported. Modern revisions have no handshake, and do not
// count.
func Negotiate(requested string, supported []string) string {
	newest := ""
	for _, version := range supported {
		switch {
		case IsModern(version):
			continue
		case version == requested:
			return version
		}
		newest = max(newest, version) // dates sort by age
	}
	return newest
}
