package schema

import (
	"context"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A budget counts the steps of some work.
type budget struct {
	ctx     context.Context // nil: the work cannot be cancelled
	left    int             // the steps that are left
	beyond  error           // what stops the work when no step is left
	stopped error           // why the work has to end
}

// step takes n steps from those that are left. It reports false once the work has to end.
func (b *budget) step(n int) bool {
	if b.stopped != nil {
		return false
	}
	before := b.left
	b.left = max(0, before-n)
	switch {
	case n > before:
		b.stopped = b.beyond
	case b.ctx != nil && before>>12 != b.left>>12 && b.ctx.Err() != nil:
		b.stopped = context.Cause(b.ctx)
	}
	return b.stopped == nil
}

// Compiling a schema takes at most maxCompileSteps. A step is up to 60 bytes of memory.
const (
	maxCompileSteps = 1_000_000
	stepsPerValue   = 4 // of the tree of the document
	stepsPerNode    = 8
	stepsPerByte    = 8    // of a pattern that is parsed
	stepsPerClass   = 1000 // of Unicode, in a pattern: such as \pL
	stepsPerInst    = 8    // of the program of a pattern

	charactersPerStep = 3 // of a range, which a pattern tries one by one to ignore case
)

// countValues returns how many values and names a JSON text has, or more.
func countValues(text []byte) int {
	count, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			count++
		}
	}
	return count
}

// A pattern is a regular expression and the number of its instructions.
type pattern struct {
	source string
	re     *regexp.Regexp
	size   int
}

// pattern compiles a regular expression, unless it has compiled the same before. What
// that will cost is counted first, because package regexp neither stops nor has a limit
// that is low enough.
func (c *compiler) pattern(source string) *pattern {
	if known := c.patterns[source]; known != nil || c.stopped != nil {
		return known
	}
	if len(source) > maxPattern {
		c.stopped = ErrTooLarge
		return nil
	}
	estimated, ok := c.estimate(source)
	if !ok || !c.step(estimated.steps()) {
		return nil
	}
	re, err := regexp.Compile(source)
	if err != nil {
		c.fail("%w", err)
		return nil
	}
	compiled := &pattern{source, re, int(estimated.insts)}
	c.patterns[source] = compiled
	return compiled
}

// estimate parses a pattern, if there are steps enough.
func (c *compiler) estimate(source string) (x extent, ok bool) {
	if !c.step(stepsToParse(source)) {
		return x, false
	}
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		c.fail("%w", err)
		return x, false
	}
	return extentOf(parsed), true
}

// stepsToParse returns how many steps it takes to parse a pattern, twice. A class of
// Unicode has about a thousand ranges. To ignore case, package syntax tries each character
// of a range.
func stepsToParse(source string) int {
	classes := strings.Count(source, `\p`) + strings.Count(source, `\P`)
	steps := stepsPerByte*len(source) + stepsPerClass*classes
	if !mayFold(source) {
		return steps
	}
	return steps + 4*stepsPerClass*classes + charactersInRanges(source)/charactersPerStep
}

// charactersInRanges returns how many characters are in the ranges of a pattern, or more:
// each - that no backslash escapes counts as one between two characters.
func charactersInRanges(source string) (n int) {
	const lastWithCase = 0x1e943
	var before, first rune // the character before this one, and the first of the range
	inRange := false
	for source != "" {
		least, most, size := character(source)
		if inRange {
			n += int(max(0, min(most, lastWithCase)+1-first))
		}
		if inRange = source[0] == '-'; inRange {
			first = before
		}
		before, source = least, source[size:]
	}
	return n
}

// character returns the least and the last character that the beginning of a pattern may
// stand for, and its size. It decodes \x{20ac}. Any other escape is a character up to \777.
func character(source string) (least, most rune, size int) {
	if source[0] != '\\' {
		r, size := utf8.DecodeRuneInString(source)
		return r, r, size
	}
	if digits, isHex := strings.CutPrefix(source, `\x{`); isHex {
		digits, _, _ = strings.Cut(digits, "}")
		if r, err := strconv.ParseUint(digits, 16, 31); err == nil && len(`\x{}`)+len(digits) <= len(source) {
			return rune(r), rune(r), len(`\x{}`) + len(digits)
		}
	}
	_, size = utf8.DecodeRuneInString(source[1:])
	return 0, 0o777, 1 + size
}

// mayFold reports whether a pattern may ignore case, by a group such as (?i).
func mayFold(source string) bool {
	for _, after := range strings.Split(source, "(?")[1:] {
		if flags := len(after) - len(strings.TrimLeft(after, "imsU-")); strings.Contains(after[:flags], "i") {
			return true
		}
	}
	return false
}

// An extent estimates the part of a program that a part of a regular expression becomes. If
// a program has fewer than 1,000 instructions, package regexp tries to make a deterministic
// one of it: then each instruction gets all ranges of characters with which the rest may
// go on from there. The ranges are counted by their bounds.
type extent struct {
	insts   int64 // instructions
	first   int64 // ranges that this part may begin with
	through int64 // 1: this part may be empty, and begin with what follows
	ranges  int64 // of all instructions
	carry   int64 // how many instructions also get the ranges of what follows
}

// steps returns how many steps it takes to compile a program of this extent.
func (x extent) steps() int {
	steps := stepsPerInst * x.insts
	if x.insts < 2000 {
		steps += x.ranges / 4
	}
	return int(min(steps, maxCompileSteps+1))
}

// then returns the extent of this part with another one behind it.
func (x extent) then(y extent) extent {
	return extent{
		insts: x.insts + y.insts, first: x.first + x.through*y.first, through: x.through * y.through,
		ranges: x.ranges + x.carry*y.first + y.ranges, carry: x.carry*y.through + y.carry,
	}
}

// optional returns the extent of x?.
func (x extent) optional() extent {
	return extent{x.insts + 1, x.first, 1, x.ranges + x.first, x.carry + 1}
}

// repeated returns the extent of x*, and of x+ or less.
func (x extent) repeated() extent {
	return extent{x.insts + 2, 2 * x.first, 1, x.ranges + (x.carry+2)*x.first, x.carry + 2}
}

var empty = extent{insts: 1, through: 1, carry: 1}

// extentOf estimates the whole program. The estimate is never too small.
func extentOf(re *syntax.Regexp) extent {
	x := within(re)
	x.insts += 2
	return x
}

// within estimates a part of a program. Package syntax bounds the depth of the tree, and the
// product of all repetitions.
func within(re *syntax.Regexp) extent {
	var inside extent
	if len(re.Sub) > 0 {
		inside = within(re.Sub[0])
	}
	switch re.Op {
	case syntax.OpLiteral:
		n := int64(len(re.Rune))
		return extent{insts: max(1, n), first: 8, ranges: 8 * n} // other cases of the character, too
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n := int64(max(4, len(re.Rune)))
		return extent{insts: 1, first: n, ranges: n}
	case syntax.OpStar, syntax.OpPlus:
		return inside.repeated()
	case syntax.OpQuest:
		return inside.optional()
	case syntax.OpCapture:
		return empty.then(inside).then(empty)
	case syntax.OpRepeat:
		return inside.times(re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub[min(1, len(re.Sub)):] {
			inside = inside.then(within(sub))
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub[min(1, len(re.Sub)):] {
			y := within(sub)
			inside = extent{
				insts: inside.insts + y.insts + 1, first: inside.first + y.first, through: max(inside.through, y.through),
				ranges: inside.ranges + y.ranges + inside.first + y.first, carry: inside.carry + y.carry + 1,
			}
		}
	default:
		return empty
	}
	return inside
}

// times returns the extent of x{least,most}, where a most of -1 is no limit.
func (x extent) times(least, most int) extent {
	all := empty
	switch {
	case most < 0:
		all = x.repeated()
		least--
	case most > least:
		all = x.optional()
		for range most - least - 1 {
			all = x.then(all).optional()
		}
	}
	for range least {
		all = x.then(all)
	}
	return all
}
