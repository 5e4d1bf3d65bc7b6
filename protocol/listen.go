package protocol

import "encoding/json"

// ListenParams open a subscription, which lasts as long as its request
// (2026-07-28 basic/patterns/subscriptions).
type ListenParams struct {
	RequestParams
	Notifications SubscriptionFilter `json:"notifications"`
}

// A SubscriptionFilter says which notifications are asked for or granted.
// Members unknown here are kept: extensions add some.
type SubscriptionFilter struct {
	ToolsListChanged      bool                       `json:"toolsListChanged,omitzero"`
	PromptsListChanged    bool                       `json:"promptsListChanged,omitzero"`
	ResourcesListChanged  bool                       `json:"resourcesListChanged,omitzero"`
	ResourceSubscriptions ResourceURIs               `json:"resourceSubscriptions,omitzero"`
	Others                map[string]json.RawMessage `json:",unknown"`
}

// ResourceURIs are the resources that a subscription names, at most
// MaxResourceURIs when decoded.
type ResourceURIs []string

// UnmarshalJSON fails with a *LimitError above MaxResourceURIs. It makes nil of
// null.
func (u *ResourceURIs) UnmarshalJSON(raw []byte) (err error) {
	*u, err = readStrings(raw, MaxResourceURIs, "resource subscriptions")
	return err
}

// AcknowledgedParams say what of a subscription is granted. They come before
// anything else of it, with MetaSubscriptionID in _meta.
type AcknowledgedParams struct {
	NotificationParams
	Notifications SubscriptionFilter `json:"notifications"`
}

// ResourceUpdatedParams say that a resource, perhaps one within the resource
// that was subscribed to, has changed.
type ResourceUpdatedParams struct {
	NotificationParams
	URI string `json:"uri"`
}

// ListenResult says that the server has ended a subscription in good order, with
// MetaSubscriptionID in _meta.
type ListenResult struct {
	Result
}
