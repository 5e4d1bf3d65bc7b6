//bowline:pure
package cluster

import "time"

// challenges protect control requests from being replayed. A node publishes a random
// challenge in its lease, and a request has to repeat it. A new one follows with the first
// renewal after challengeFresh; the older ones are accepted until challengeKept after they
// were made. Meanwhile the ids of requests are remembered, so that each is done once. No
// clock of another node counts.
type challenges struct {
	made  []challenge // the newest last
	seen  map[string]instant
	swept instant // when old ids were removed
}

type challenge struct {
	text string
	at   instant
}

const (
	challengeFresh = 10 * time.Second
	challengeKept  = 40 * time.Second
	maxSeen        = 16_384 // requests within challengeKept
)

// present returns the newest challenge, and makes one if it is old.
func (c *challenges) present(now instant, random func() string) string {
	for len(c.made) > 0 && now-c.made[0].at > challengeKept {
		c.made = c.made[1:]
	}
	if last := len(c.made) - 1; last >= 0 && now-c.made[last].at < challengeFresh {
		return c.made[last].text
	}
	c.made = append(c.made, challenge{random(), now})
	return c.made[len(c.made)-1].text
}

// accept reports whether a request repeats a challenge, and comes for the first time.
func (c *challenges) accept(now instant, text, id string) bool {
	valid := false
	for _, m := range c.made {
		valid = valid || m.text == text && now-m.at <= challengeKept
	}
	if _, again := c.seen[id]; !valid || again || id == "" {
		return false
	}
	if now-c.swept > challengeFresh {
		c.swept = now
		for old, at := range c.seen {
			if now-at > challengeKept {
				delete(c.seen, old)
			}
		}
	}
	if len(c.seen) >= maxSeen {
		return false
	}
	if c.seen == nil {
		c.seen = map[string]instant{}
	}
	c.seen[id] = now
	return true
}
