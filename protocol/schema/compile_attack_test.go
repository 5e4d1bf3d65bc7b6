package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
)

// filled repeats an element until the schema is nearly as large as it may be.
func filled(before, element, after string) string {
	var all strings.Builder
	all.WriteString(before)
	for i := 0; all.Len()+len(element)+len(after)+20 < largestSchema; i++ {
		if i > 0 {
			all.WriteByte(',')
		}
		all.WriteString(strings.ReplaceAll(element, "#", fmt.Sprint(i)))
	}
	all.WriteString(after)
	return all.String()
}

// patternsOf returns a schema of different patterns, each repeating a part.
func patternsOf(before, part, after string) string {
	body := strings.Repeat(part, (maxPattern-len(before)-len(after)-8)/len(part))
	return filled(`{"allOf":[`, `{"pattern":"`+before+`#x`+body+after+`"}`, `]}`)
}

// compileAttacks are schemas that once took, or could take, far more than their size.
func compileAttacks() map[string]string {
	return map[string]string{
		"repeated letters":          patternsOf("", `a{1000}`, ""),
		"one repeated part":         filled(`{"allOf":[`, `{"pattern":"#(?:a{30}b{30}){16}"}`, `]}`),
		"nested optional parts":     filled(`{"allOf":[`, `{"pattern":"#(?:a?b?c?){0,300}"}`, `]}`),
		"classes of Unicode":        patternsOf("", `\\pL`, ""),
		"classes in a class":        patternsOf("[", `\\pL\\PN`, "]"),
		"classes without case":      patternsOf("(?i)", `\\PL`, ""),
		"ranges without case":       patternsOf("(?i)", `[B-\\x{1e942}]`, ""),
		"plain ranges without case": patternsOf("(?si)", `[B-𞥂]`, ""),
		"late flags":                patternsOf("(?-s:a)(?sm-i:b)(?i:", `[B-\\x{1e942}]`, ")"),
		"many branches":             filled(`{"allOf":[`, `{"pattern":"^(?:#`+branches(300)+`)$"}`, `]}`),
		"branches of classes":       filled(`{"allOf":[`, `{"pattern":"^(?:#|\\pL1|\\pN2|\\pS3|\\pZ4|\\pM5|\\pC6)$"}`, `]}`),
		"repeated branches":         filled(`{"allOf":[`, `{"pattern":"^#(?:\\pL?\\pN?){0,150}$"}`, `]}`),
		"optional letters":          patternsOf("^", `a?b?c?d?`, "$"),
		"small classes":             filled(`{"allOf":[`, `{"pattern":"#\\pL"}`, `]}`),
		"small classes, anchored":   filled(`{"allOf":[`, `{"pattern":"^#\\pL\\PN$"}`, `]}`),
		"small classes of all":      filled(`{"allOf":[`, `{"pattern":"(?i)^#[^\\pL\\PN]{1,9}$"}`, `]}`),
		"small ranges without case": filled(`{"allOf":[`, `{"pattern":"(?i)#[B-\\x{1e942}]"}`, `]}`),
		"repeated classes":          filled(`{"allOf":[`, `{"pattern":"^#\\p{L}{1,300}$"}`, `]}`),
		"long patterns":             filled(`{"allOf":[`, `{"pattern":"#`+strings.Repeat("a{99}", 40)+`"}`, `]}`),
		"long anchored patterns":    filled(`{"allOf":[`, `{"pattern":"^#(?:a?b?c?d?e?f?g?h?i?j?k?){20}$"}`, `]}`),
		"deep groups":               patternsOf("", strings.Repeat("(", 400)+"a"+strings.Repeat(")", 400), ""),
		"deep repetitions":          patternsOf("", strings.Repeat("(?:", 300)+"a"+strings.Repeat("*b)", 300), ""),
		"many small patterns":       filled(`{"patternProperties":{`, `"#a*":{}`, `}}`),
		"captures":                  patternsOf("", `()`, ""),
		"many names":                patternsOf("", `(?P<a1>)`, ""),
		"empty schemas":             filled(`{"allOf":[`, `{}`, `]}`),
		"boolean schemas":           filled(`{"prefixItems":[`, `true`, `]}`),
		"schemas with all rules":    filled(`{"allOf":[`, `{"minimum":0,"minLength":0,"minItems":0,"minProperties":0}`, `]}`),
		"properties":                filled(`{"properties":{`, `"#":{}`, `}}`),
		"objects of properties":     filled(`{"allOf":[`, `{"properties":{"a":{}}}`, `]}`),
		"objects of required":       filled(`{"allOf":[`, `{"required":["a"]}`, `]}`),
		"lists of required":         filled(`{"required":[`, `"#"`, `]}`),
		"dependencies":              filled(`{"dependentRequired":{`, `"#":["a"]`, `}}`),
		"small constants":           filled(`{"enum":[`, `1`, `]}`),
		"different constants":       filled(`{"enum":[`, `#`, `]}`),
		"escaped constants":         filled(`{"enum":["`, strings.Repeat("<", 64), `"]}`),
		"objects as constants":      filled(`{"enum":[`, `{}`, `]}`),
		"a large constant in many":  `{"const":[` + strings.Repeat("1,", 60_000) + `1],"enum":[` + strings.Repeat("[1],", 25_000) + `1]}`,
		"a wide constant in many":   `{"const":{` + many(10_000, `"#":0`) + `},"enum":[` + strings.Repeat("{},", 40_000) + `1]}`,
		"many enums":                filled(`{"allOf":[`, `{"enum":[#]}`, `]}`),
		"constants in constants":    constantsInConstants(4_900),
		"references":                `{"$defs":{"a":{"a":{}}},"allOf":[` + many(9_000, `{"$ref":"#/$defs/a"}`) + `]}`,
		"different references":      filled(`{"$defs":{"a":[`+strings.Repeat("1,", 9)+`{}]},"allOf":[`, `{"$ref":"\u0023/$defs/a/9?#"}`, `]}`),
		"long references":           longReferences(60, 2_000),
		"a chain of references":     chainOfReferences(6_000),
		"deep schemas":              nested(`{"not":`, `{}`, `}`, 9_000),
		"deep lists":                nested(`{"a":[`, `1`, `]}`, 4_000),
		"anchors":                   filled(`{"allOf":[`, `{"$anchor":"#"}`, `]}`),
		"a long text":               `{"description":"` + strings.Repeat("a", largestSchema-100) + `"}`,
		"escapes":                   `{"description":"` + strings.Repeat(`\u0000`, 40_000) + `"}`,
		"commas in a text":          `{"description":"` + strings.Repeat(`,`, largestSchema-100) + `"}`,
		"a list of types":           filled(`{"type":[`, `"null"`, `]}`),
		"a wrong type":              filled(`{"type":[[`, `1`, `]]}`),
		"a dialect of values":       filled(`{"$schema":[`, `1`, `]}`),
		"all of 16 MiB":             `{"allOf":[` + strings.Repeat(`{},`, 16<<20/3-10) + `{}]}`,
		"a pattern of 16 MiB":       `{"pattern":"` + strings.Repeat(`\\pL`, 16<<20/4-10) + `"}`,
	}
}

func branches(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "|%cx", 0x100+2*i)
	}
	return all.String()
}

func constantsInConstants(n int) string {
	var before strings.Builder
	for i := range n {
		fmt.Fprintf(&before, `{"$anchor":"%d","$ref":"#%d","enum":[`, i, i+1)
	}
	return before.String() + fmt.Sprintf(`{"$anchor":"%d"}`, n) + strings.Repeat("]}", n)
}

func longReferences(n, length int) string {
	path := strings.Repeat("/a", length)
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `{"$ref":"#/$defs%s"},`, path[:len(path)-2*i])
	}
	return `{"$defs":` + nested(`{"a":`, `{}`, `}`, length+1) + `,"allOf":[` + all.String() + `{}]}`
}

func chainOfReferences(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `"%d":{"$ref":"#/$defs/%d"},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/0","$defs":{%s"%d":{}}}`, all.String(), n)
}

// To compile any schema takes a bounded number of steps, and at most 64 MiB in all.
//
// Guarantees: G-0016.12
func TestCompilingIsBounded(t *testing.T) {
	const most = 64 << 20
	for name, text := range compileAttacks() {
		raw := json.RawMessage(text)
		if len(raw) > 16<<20 || !json.Valid(raw) {
			t.Fatalf("%s: %d bytes, valid %t", name, len(raw), json.Valid(raw))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Compile(t.Context(), raw)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: %d MiB for %d bytes, %v, want at most %d MiB", name, took>>20, len(raw), err, most>>20)
		}
		if len(raw) > largestSchema {
			continue
		}
		if _, steps, err := compile(t.Context(), raw, false); steps > maxCompileSteps || steps == maxCompileSteps && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %d steps, %v, want %d at most", name, steps, err, maxCompileSteps)
		}
	}
}

// Compile ends when its context ends.
//
// Guarantees: G-0016.12
func TestCompileStopsWithItsContext(t *testing.T) {
	why := errors.New("the call ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &compiler{budget: budget{ctx: ctx, left: maxCompileSteps, beyond: ErrTooLarge}}
	cancel(why)
	if c.step(100); c.stopped != nil { // it looks at the context now and then
		t.Fatal(c.stopped)
	}
	if c.step(1 << 12); !errors.Is(c.stopped, why) {
		t.Errorf("after 4,196 steps: got %v, want %v", c.stopped, why)
	}
	if _, err := Compile(ctx, json.RawMessage(`{}`)); !errors.Is(err, why) {
		t.Errorf("a context that has ended: got %v, want %v", err, why)
	}
}

// The estimate of a pattern's program is never too small, and near for the patterns that
// people write.
func TestPatternsAreEstimated(t *testing.T) {
	for _, source := range []string{
		``, `a`, `abc`, `^[a-z0-9]+(-[a-z0-9]+)*$`, `^\d{4}-\d{2}-\d{2}$`, `(a|bc|d*)+`, `(?i)straße|maß`, `a{0}`, `a{3}`, `a{3,}`, `a{0,}`, `a{1,}`, `a{2,5}`, `(a{2,5}b?){1,4}`,
		`(?:a*)*`, `(?:a*)+`, `()`, `(|a){3}`, `.`, `(?s).`, `^$`, `\b\B\A\z`, `[^\x00-\x{10FFFF}]`, `(?:[^\x00-\x{10FFFF}])*`, `\pL{1,64}`, `(?:(?:(?:a{10}){10}){10})`, `(?:)`, `(?:){9}`,
	} {
		parsed, err := syntax.Parse(source, syntax.Perl)
		if err != nil {
			t.Fatal(source, err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(source, err)
		}
		if n, got := int64(len(program.Inst)), extentOf(parsed).insts; got < n || got > 2*n+4 {
			t.Errorf("%s: %d instructions, estimated %d", source, n, got)
		}
	}
}

// Patterns that people write are cheap: a schema may have a hundred different ones.
func TestUsualPatternsAreCheap(t *testing.T) {
	for _, source := range []string{
		`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`, `^(([^<>()[\]\.,;:\s@"]+(\.[^<>()[\]\.,;:\s@"]+)*)|(".+"))@[a-z]{2,63}$`,
		`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, `^#([A-Fa-f0-9]{6}|[A-Fa-f0-9]{3})$`, `(?i)^https?://`, `^\S{1,255}$`, `^[\pL\pN ]+$`,
		`(?i)^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$`, `(?i)[\x{4e00}-\x{9fa5}a-z]`, `(?i)^[\x20-\x7e]+$`, `(?i)^\d{3}\-\d{4}-\w+$`, `(?i)^[a-z0-9_\-\.]+$`,
	} {
		raw, err := json.Marshal(map[string]string{"pattern": source})
		if err != nil {
			t.Fatal(err)
		}
		if _, steps, err := compile(t.Context(), raw, false); err != nil || steps > maxCompileSteps/100 {
			t.Errorf("%s: %d steps, %v, want at most %d", source, steps, err, maxCompileSteps/100)
		}
	}
}

// A range costs steps for each of its characters if the pattern ignores case, however the
// range is written. A - that is no range costs none.
func TestRangesWithoutCaseAreCounted(t *testing.T) {
	const characters = 0x1e942 - 'a'
	for _, source := range []string{
		`[a-\x{1e942}]`, `[a-\x{00000001E942}]`, `[a-𞥂]`, `[\x61-\x{1e942}]`, `[\141-𞥂]`, `[\x{61}-𞥂]`, `[\\-\x{1e942}]`, `[--𞥂]`, `[\--\x{1e942}]`, `[\w--𞥂]`, `[+--b-𞥂]`,
		`\Q\\E[a-𞥂]`, `\Q\\\E[\\-𞥂]`, `\Q\\\\E[\\-𞥂]`,
	} {
		if _, err := syntax.Parse(source, syntax.Perl|syntax.FoldCase); err != nil {
			t.Fatal(err)
		}
		if got := charactersInRanges(source); got < characters || got > characters+0x200 {
			t.Errorf("%s: %d characters, want %d, or 512 more at most", source, got, characters)
		}
	}
	for _, source := range []string{`\x`, `\x{`, `\x{}-`, `\x{61`, `\`, `-\`, `-`, `a-\x{ffffffff}`, "\xff-\xff\\\xff", `[\-\x{1e942}]`, `[a-\]𞥂]`, `[\x{9fa5}\x{1e942}-]`} {
		if got := charactersInRanges(source); got > 0x200 {
			t.Errorf("%s: %d characters, want 512 at most", source, got)
		}
	}
}
