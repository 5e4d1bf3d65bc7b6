package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	codeTime = time.Minute // for a browser to start
	maxCodes = 16
)

// A code logs one browser in, once.
type code struct {
	text  string
	until time.Time
}

// codes are those that hold. Their zero value is ready, and has no page.
type codes struct {
	mu   sync.Mutex
	page string // where browsers find the page; "": nowhere
	all  []code
}

// errNoPage means that there is no page, or that nobody can act there.
var errNoPage = errors.New("this gateway has no page to log in to: see --admin of bowline up, and what it has printed")

// at says where browsers find the page.
func (c *codes) at(page string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.page = page
}

// issue returns the address that logs a browser in. The oldest code goes if there are too many: a program that asks again and again
// must not keep a person out, nor fill the memory.
func (c *codes) issue() (address string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == "" {
		return "", errNoPage
	}
	if len(c.all) == maxCodes {
		c.all = slices.Delete(c.all, 0, 1)
	}
	next := code{rand.Text(), time.Now().Add(codeTime)}
	c.all = append(c.all, next)
	return c.page + "login/" + next.text, nil
}

// redeem reports whether a code holds, which it does once.
func (c *codes) redeem(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(known code) bool { return equal(known.text, text) })
	if i < 0 {
		return false
	}
	holds := time.Now().Before(c.all[i].until)
	c.all = slices.Delete(c.all, i, i+1)
	return holds
}

// equal compares secrets in constant time, whatever their lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
