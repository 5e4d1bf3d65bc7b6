package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
)

// Codes of the JetStream API; see errors.json of nats-server.
const (
	codeNoPeers      = 10005 // too few servers are up for the replicas
	codeNotAvailable = 10008 // the servers have no leader
	codeNotLeader    = 10009
	codeResources    = 10023
	codeMemory       = 10028
	codeStorage      = 10047
	codeWrongLast    = 10071 // the key has another revision
	codeNotClustered = 10074 // so there are no replicas
	codeStore        = 10077 // the stream has no room
	codeNoMessage    = 10057 // it was deleted before
	codeOffline      = 10118
	codeStreamBytes  = 10122
	codeNotReady     = 10163 // to compare revisions
	codeWrongLastR3  = 10164 // codeWrongLast of a stream with replicas, or another write is on its way
)

// explain translates an error to one of package cluster. Its text keeps what the server said.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return outOfTime(ctx)
	}
	if isExplained(err) {
		return err
	}
	if isOneOf(err, natsgo.ErrAuthorization, natsgo.ErrAuthExpired, natsgo.ErrAuthRevoked, natsgo.ErrAccountAuthExpired, natsgo.ErrPermissionViolation) {
		return denied(err)
	}
	switch code(err) {
	case codeWrongLast, codeWrongLastR3:
		return fmt.Errorf("%w: %w", cluster.ErrConflict, err)
	case codeStore, codeMemory, codeStorage, codeStreamBytes, codeResources:
		return fmt.Errorf("%w: %w", cluster.ErrFull, err)
	}
	return fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
}

// isExplained reports whether an error is one that callers know.
func isExplained(err error) bool {
	return errors.As(err, new(*cluster.SettingsError)) || errors.As(err, new(*ServerError)) ||
		isOneOf(err, cluster.ErrUnavailable, cluster.ErrNotFound, jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount)
}

func isOneOf(err error, known ...error) bool {
	return slices.ContainsFunc(known, func(one error) bool { return errors.Is(err, one) })
}

// code returns the code of an error of the JetStream API, or 0.
func code(err error) int {
	if api, ok := errors.AsType[jetstream.JetStreamError](err); ok && api.APIError() != nil {
		return int(api.APIError().ErrorCode)
	}
	return 0
}

func outOfTime(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, cluster.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", cluster.ErrUnavailable, cause)
}
