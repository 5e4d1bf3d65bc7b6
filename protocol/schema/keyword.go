package schema

import (
	"math"
)

// has reports whether a schema has one of these keywords.
func has(s object, keywords ...string) bool {
	for _, keyword := range keywords {
		if _, ok := s[keyword]; ok {
			return true
		}
	}
	return false
}

// The readers of keywords. Each fails the compiler if the keyword is malformed.

func (c *compiler) single(s object, keyword string) *node {
	schema, ok := s[keyword]
	if !ok {
		return nil
	}
	return c.node(schema)
}

func (c *compiler) list(s object, keyword string) []*node {
	value, ok := s[keyword]
	if !ok {
		return nil
	}
	schemas, ok := value.([]any)
	if !ok {
		c.fail("%s is no array", keyword)
	}
	return c.all(schemas)
}

func (c *compiler) all(schemas []any) []*node {
	nodes := make([]*node, len(schemas))
	for i := 0; i < len(schemas) && c.stopped == nil; i++ {
		nodes[i] = c.node(schemas[i])
	}
	return nodes
}

func (c *compiler) byName(s object, keyword string) map[string]*node {
	value, ok := s[keyword]
	if !ok {
		return nil
	}
	schemas, ok := value.(object)
	if !ok {
		c.fail("%s is no object", keyword)
	}
	nodes := make(map[string]*node, len(schemas))
	for name, schema := range schemas {
		if nodes[name] = c.node(schema); c.stopped != nil {
			break
		}
	}
	return nodes
}

func (c *compiler) text(s object, keyword string) (string, bool) {
	value, ok := s[keyword]
	text, isText := value.(string)
	if ok && !isText {
		c.fail("%s is no string", keyword)
	}
	return text, isText
}

func (c *compiler) texts(value any, keyword string) (all []string) {
	if value == nil {
		return nil
	}
	list, ok := value.([]any)
	for _, one := range list {
		text, isText := one.(string)
		ok = ok && isText
		all = append(all, text)
	}
	if !ok {
		c.fail("%s is no array of strings", keyword)
	}
	return all
}

func (c *compiler) number(s object, keyword string) float64 {
	value, ok := s[keyword]
	number, isNumber := value.(float64)
	if ok && !isNumber {
		c.fail("%s is no number", keyword)
	}
	if !isNumber {
		return math.NaN()
	}
	return number
}

// size returns the value of a keyword that limits a number of things, or -1 if
// it is absent.
func (c *compiler) size(s object, keyword string) int {
	number := c.number(s, keyword)
	switch {
	case math.IsNaN(number):
		return -1
	case number < 0 || number != math.Trunc(number):
		c.fail("%s is no natural number", keyword)
	}
	return int(min(number, math.MaxInt32))
}
