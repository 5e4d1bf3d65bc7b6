package protocol

// DiscoverParams ask what a server is, and which revisions it speaks
// (2026-07-28 server/discover).
type DiscoverParams struct {
	RequestParams
}

// DiscoverResult is what a server is. Its name is in _meta, under
// MetaServerInfo.
type DiscoverResult struct {
	CacheableResult
	SupportedVersions SupportedVersions  `json:"supportedVersions"` // nil when absent
	Capabilities      ServerCapabilities `json:"capabilities"`
	Instructions      string             `json:"instructions,omitzero"`
}

// SupportedVersions are the revisions a server speaks, at most MaxVersions when
// decoded.
type SupportedVersions []string

// UnmarshalJSON fails with a *LimitError above MaxVersions. It makes nil of null.
func (v *SupportedVersions) UnmarshalJSON(raw []byte) (err error) {
	*v, err = readStrings(raw, MaxVersions, "supported versions")
	return err
}
