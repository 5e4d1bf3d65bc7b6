package gateway

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A list for a gateway names each gateway behind it once, in order, and no more than 64.
//
// Guarantees: G-0088.14
func TestWhichGatewaysAreBehind(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("g%03d", i))
	}
	for what, c := range map[string]struct {
		behind [][]string // of each server
		want   []string
	}{
		"none":               {[][]string{nil, nil}, []string{"me"}},
		"the same of two":    {[][]string{{"z", "a"}, {"a", "b"}, nil}, []string{"a", "b", "me", "z"}},
		"more than are told": {[][]string{many}, many[:64]},
		"more of two":        {[][]string{many[:40], many[30:]}, many[:64]},
	} {
		servers := make(map[string]*upstream)
		for i, behind := range c.behind {
			u := &upstream{traffic: new(traffic)}
			if err := u.setBehind("me", behind); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			servers[fmt.Sprint(i)] = u
		}
		if got := passed("me", servers); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

// A server that has led back once stays out, whatever it says later, and what was behind one that says nothing any more is forgotten.
//
// Guarantees: G-0088.14
func TestARingStaysOut(t *testing.T) {
	u, servers := &upstream{traffic: new(traffic)}, make(map[string]*upstream)
	servers["a"] = u
	said := func(behind []string, want ...string) {
		t.Helper()
		if err := u.setBehind("me", behind); err != nil {
			t.Error(err)
		}
		if got := passed("me", servers); !slices.Equal(got, want) {
			t.Errorf("after %q: got %q, want %q", behind, got, want)
		}
	}
	said([]string{"other"}, "me", "other")
	said(nil, "me")
	said([]string{"other"}, "me", "other")
	for _, behind := range [][]string{{"other", "me"}, {"other"}, nil} {
		var ring *RingError
		if err := u.setBehind("me", behind); !errors.As(err, &ring) {
			t.Errorf("with %q behind: %v", behind, err)
		}
		if got := passed("me", servers); !slices.Equal(got, []string{"me"}) {
			t.Errorf("of a server that leads back, %q are told", got)
		}
	}
}
