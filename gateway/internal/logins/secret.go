package logins

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"
)

const (
	// Life is how long a link may be used, and how long the login that it has begun may take then.
	Life = 10 * time.Minute

	mostOfUser = 16   // logins that a user may have open
	mostOfAll  = 1024 // and all users together
)

// These are why there is no link.
var (
	// ErrFull is the error of Open if too many logins are open: it helps to finish some, or to wait.
	ErrFull = errors.New("too many logins are open: finish one, or wait for ten minutes")

	// ErrClosed is the error of a login that the end of the gateway has cut, and of a link that somebody wants then.
	ErrClosed = errors.New("the gateway ends")
)

// A digest stands for a secret, so that to look one up takes a time that tells nothing of others.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// newSecret returns 256 random bits, as secretLength characters.
func newSecret() string {
	var bits [32]byte
	rand.Read(bits[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

const secretLength = 43
