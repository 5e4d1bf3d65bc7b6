package cluster

import (
	"encoding/json"
	"errors"
	"time"
)

// recordVersion is the version of the values in the bucket of leases. Values of another
// version are left alone and reported.
const recordVersion = 1

// A leaseRecord is the value of node.<name> in the bucket of leases.
type leaseRecord struct {
	Version     int               `json:"v"`
	Epoch       string            `json:"epoch"`
	Term        uint64            `json:"term"`
	Address     string            `json:"addr,omitempty"`
	Certificate []byte            `json:"spki,omitempty"`
	Program     string            `json:"version,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Draining    bool              `json:"draining,omitempty"`
	Since       time.Time         `json:"since"`
	Challenge   string            `json:"ctl,omitempty"` // what control requests have to repeat
}

// A claimRecord is the value of another key in the bucket of leases.
type claimRecord struct {
	Version int    `json:"v"`
	Node    string `json:"node"`
	Epoch   string `json:"epoch"`
	Number  uint64 `json:"n"` // of the claims of this epoch
	Data    []byte `json:"data,omitempty"`
}

var (
	errVersion = errors.New("it has another version")
	errNoEpoch = errors.New("it has no epoch")
)

// decodeRecord reads a record of version recordVersion.
func decodeRecord(plain []byte, into any) error {
	var version struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(plain, &version); err != nil {
		return err
	}
	if version.Version != recordVersion {
		return errVersion
	}
	return json.Unmarshal(plain, into)
}

// openLease opens the value of a node's lease. What cannot be read is counted.
func (n *Node) openLease(key string, sealed []byte) (r leaseRecord, err error) {
	err = n.openRecord(key, sealed, &r, &r.Epoch)
	return r, err
}

// openClaim does the same for a claim.
func (n *Node) openClaim(key string, sealed []byte) (r claimRecord, err error) {
	err = n.openRecord(key, sealed, &r, &r.Epoch)
	return r, err
}

// openRecord opens a record, which must have an epoch.
func (n *Node) openRecord(key string, sealed []byte, into any, epoch *string) error {
	plain, err := n.open(sealLease, leaseBucket+"/"+key, sealed)
	if err != nil {
		return err
	}
	if err = decodeRecord(plain, into); err == nil && *epoch == "" {
		err = errNoEpoch
	}
	if err != nil {
		n.sealer.refused.Add(1)
	}
	return err
}

// encode returns a value of this package as JSON. It has no types that JSON cannot express.
func encode(value any) []byte {
	plain, err := json.Marshal(value)
	if err != nil {
		panic("cluster: a record cannot be encoded: " + err.Error())
	}
	return plain
}
