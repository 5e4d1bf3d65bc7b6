package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

const (
	prefix  = "bowline_" // by which people and scanners of secrets know a token
	maxFile = 1 << 20    // bytes
)

// A Token is one that was given out. The token itself is not kept.
type Token struct {
	Name    string    `json:"name"` // of the user
	Hash    string    `json:"hash"` // SHA-256, in hexadecimal digits
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// The errors that Add and Revoke wrap.
var (
	ErrExists  = errors.New("there is a token of that name: revoke it first")
	ErrUnknown = errors.New("there is no token of that name")
	ErrName    = errors.New("a name has 1 to 64 letters, digits, or . _ @ -")
	ErrFull    = errors.New("there is no room for another token in the file: use one file for each server, or log users in with auth/resource")
)

var validName = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)

// content is what a file has.
type content struct {
	Tokens []Token `json:"tokens"`
}

// Add makes a token for a user, of 256 random bits, and adds its hash to a file, which need not exist. Nobody can find out the token later. Servers that have
// opened the file take it within a second. A zero time means that it does not expire.
func Add(path, name string, expires time.Time) (token string, err error) {
	if !validName.MatchString(name) {
		return "", fmt.Errorf("%q: %w", name[:min(len(name), 80)], ErrName)
	}
	secret := make([]byte, sha256.Size)
	rand.Read(secret) // which never fails
	token = prefix + base64.RawURLEncoding.EncodeToString(secret)
	made := Token{name, hashOf(token), time.Now().UTC().Truncate(time.Second), expires.UTC()}
	return token, change(path, func(all []Token) ([]Token, error) {
		if slices.ContainsFunc(all, func(t Token) bool { return t.Name == name }) {
			return nil, fmt.Errorf("%s: %w", name, ErrExists)
		}
		return append(all, made), nil
	})
}

// Revoke removes the token of a user. Servers refuse it within a second, and end its streams within five minutes.
func Revoke(path, name string) error {
	return change(path, func(all []Token) ([]Token, error) {
		left := slices.DeleteFunc(slices.Clone(all), func(t Token) bool { return t.Name == name })
		if len(left) == len(all) {
			return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
		}
		return left, nil
	})
}

// List returns the tokens of a file in the order in which they were made. A file that does not exist has none.
func List(path string) ([]Token, error) {
	all, _, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// change replaces a file by one with other tokens, while no other process does.
func change(path string, by func([]Token) ([]Token, error)) error {
	lock, err := private.Lock(path + ".lock")
	switch {
	case errors.Is(err, private.ErrLocked):
		return fmt.Errorf("another process changes %s: try again", path)
	case err != nil:
		return err
	}
	defer func() { _ = private.Unlock(lock) }()
	all, err := List(path)
	if err == nil {
		all, err = by(all)
	}
	if err != nil {
		return err
	}
	text, err := encode(all)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return private.Replace(path, text)
}

// encode returns the text of a file. It fails with ErrFull if that were so long that nobody could read it any more.
func encode(all []Token) ([]byte, error) {
	text, err := json.MarshalIndent(content{all}, "", "  ")
	if err != nil {
		return nil, err
	}
	if text = append(text, '\n'); len(text) > maxFile {
		return nil, ErrFull
	}
	return text, nil
}

// read reads a file whole, and returns what tells it from a later one.
func read(path string) (all []Token, version fs.FileInfo, err error) {
	file, err := private.OpenTrusted(path) // a hash of 256 random bits is no secret
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if version, err = file.Stat(); err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxFile {
		return nil, nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	all, err = decode(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, version, nil
}

// decode refuses whatever Add does not write: a token that somebody believes to be revoked, or limited, must not be valid because of a slip.
func decode(text []byte) ([]Token, error) {
	var c content
	strict := json.NewDecoder(strings.NewReader(string(text)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&c); err != nil {
		return nil, err
	}
	if strict.More() {
		return nil, errors.New("something follows the tokens")
	}
	names, hashes := make(map[string]bool), make(map[string]bool)
	for i, t := range c.Tokens {
		sum, err := hex.DecodeString(t.Hash)
		switch {
		case !validName.MatchString(t.Name):
			return nil, fmt.Errorf("token %d: %w", i+1, ErrName)
		case err != nil || len(sum) != sha256.Size || strings.ToLower(t.Hash) != t.Hash:
			return nil, fmt.Errorf("token %d, %s: its hash is not that of bowline token add", i+1, t.Name)
		case names[t.Name] || hashes[t.Hash]:
			return nil, fmt.Errorf("token %d, %s: there is another one with this name or hash", i+1, t.Name)
		}
		names[t.Name], hashes[t.Hash] = true, true
	}
	return c.Tokens, nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
