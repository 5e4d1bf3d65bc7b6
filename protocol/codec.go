package protocol

import (
	"bytes"
	stdjson "encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Messages decode and encode themselves by functions that internal/generate writes from the
// structs and their tags (zz_codec.go), several times as fast as reflection. They only
// accept: where they are not sure, because of null, a limit, a wrong type or a rare form of
// JSON, reflection decides, so errors and limits have one place. What they accept has the
// same value, and what they write the same bytes, as with reflection; fuzzing compares them.
// They may not change anything before the whole text is accepted.
//
// This file has what the generated functions consist of, and the unions.

// readRaw copies a value other than null, which in many places means none.
func readRaw(text *scan.Text) stdjson.RawMessage { return bytes.Clone(readPart(text)) }

// readShared is readRaw, but does not copy what is at least half of the message: to keep
// that alive costs less.
func readShared(text *scan.Text) stdjson.RawMessage {
	value := readPart(text)
	if len(value) < text.Size()/2 {
		return bytes.Clone(value)
	}
	return value
}

// readPart returns the text of a value other than null. It refers to the message.
func readPart(text *scan.Text) []byte {
	if text.Kind() == 'n' {
		text.Fail()
	}
	return text.Value()
}

// readPlain reads a value other than null by reflection.
func readPlain[T any](text *scan.Text) (value T) {
	if raw := readPart(text); raw == nil || json.Unmarshal(bytes.Clone(raw), &value, jsontext.AllowInvalidUTF8(true)) != nil {
		text.Fail()
	}
	return value
}

// readMeta reads a _meta. Its values are copies, because a client may keep them for longer than
// the message.
func readMeta(text *scan.Text) Meta {
	meta := Meta{}
	for name := range text.Members {
		switch string(name) {
		case MetaServerInfo: // of every modern result
			meta[MetaServerInfo] = readRaw(text)
		case MetaTraceparent: // of every request that is traced
			meta[MetaTraceparent] = readRaw(text)
		default:
			meta[string(name)] = readRaw(text)
		}
	}
	return meta
}

// readOther keeps an unknown member.
func readOther(text *scan.Text, others map[string]stdjson.RawMessage, name []byte) map[string]stdjson.RawMessage {
	if others == nil {
		others = make(map[string]stdjson.RawMessage)
	}
	others[string(name)] = readRaw(text)
	return others
}

// readStrings reads an object whose members are all strings.
func readStrings(text *scan.Text) map[string]string {
	all := make(map[string]string)
	for name := range text.Members {
		all[string(name)] = text.String()
	}
	return all
}

// readTexts reads an array of at most so many strings. An empty array is not nil.
func readTexts[S ~string](text *scan.Text, most int) []S {
	all := []S{}
	for range text.Elements {
		if len(all) == most {
			text.Fail()
		}
		all = append(all, S(readWord(text)))
	}
	return all
}

// readWord reads a string that is most often one of these, which then needs no memory.
func readWord(text *scan.Text) string {
	return text.Word(ResultComplete, CachePrivate, CachePublic, Version20260728, Version20251125, Version20250618, Version20250326, Version20241105,
		string(RoleUser), string(RoleAssistant), string(LogInfo), string(LogDebug), "text/plain", "application/json", "image/png")
}

// readInteger reads an integer without fraction and exponent.
func readInteger(text *scan.Text) int64 {
	n, err := strconv.ParseInt(string(text.Value()), 10, 64)
	if err != nil {
		text.Fail()
	}
	return n
}

// readFloat reads a number. Strings, which ParseFloat would read, too, are refused.
func readFloat(text *scan.Text) float64 {
	if text.Kind() != '0' {
		text.Fail()
	}
	n, err := strconv.ParseFloat(string(text.Value()), 64)
	if err != nil {
		text.Fail()
	}
	return n
}

// readIdentifier reads a number or a string: an id of a request, or a token of progress.
func readIdentifier(text *scan.Text) (id jsonrpc.ID) {
	if id.UnmarshalJSON(text.Value()) != nil {
		text.Fail()
	}
	return id
}

// decodeContents reads blocks of the types that results have. Reflection keeps the others.
func decodeContents(text *scan.Text) Contents {
	blocks := Contents{}
	for range text.Elements {
		if len(blocks) == MaxItems {
			text.Fail()
		}
		if len(blocks) == 0 && typeOf(text) == "text" {
			var only *TextContent
			blocks, only = oneText()
			decodeTextContent(text, only)
			continue
		}
		blocks = append(blocks, decodeContent(text))
	}
	return blocks
}

// decodeContent reads one block by its type. Reflection keeps a block of another type.
func decodeContent(text *scan.Text) Content {
	switch block := newContent(typeOf(text)).(type) {
	case *TextContent:
		decodeTextContent(text, block)
		return block
	case *ImageContent:
		decodeImageContent(text, block)
		return block
	case *AudioContent:
		decodeAudioContent(text, block)
		return block
	case *EmbeddedResource:
		decodeEmbeddedResource(text, block)
		return block
	case *ResourceLink:
		decodeResourceLink(text, block)
		return block
	default:
		text.Fail()
		return nil
	}
}

// typeOf finds the type of a block before it is read: most often, in its first member.
func typeOf(text *scan.Text) (name string) {
	if text.Starts(beforeText[:len(`{"type":"text"`)]) { // as most do: saves a copy of text
		return "text"
	}
	here := *text
	for member := range here.Members {
		if string(member) == "type" {
			return here.Word("text", "image", "audio", "resource", "resource_link")
		}
		here.Value()
	}
	return ""
}

// roomAfter returns for how many elements a list makes room at once when it has n. It is a few
// only, because an element that is kept keeps those beside it.
func roomAfter(n int) int { return min(max(n, 1), 16) }

// decodePromptMessage reads a message, whose content stays nil if there is none.
func decodePromptMessage(text *scan.Text, to *PromptMessage) {
	for name := range text.Members {
		switch string(name) {
		case "role":
			to.Role = Role(readWord(text))
		case "content":
			to.Content = decodeContent(text)
		default:
			text.Value()
		}
	}
}

// appendRaw refuses invalid JSON and repeated names. JSON as encoders write it is
// copied.
func appendRaw(dst []byte, raw stdjson.RawMessage) ([]byte, bool) {
	text := scan.Unique(raw)
	if text.Value(); text.End() && text.IsCompact() {
		return append(dst, raw...), true
	}
	dst, err := jsontext.AppendFormat(dst, raw, jsontext.AllowInvalidUTF8(true))
	return dst, err == nil
}

// appendPlain appends what reflection writes.
func appendPlain(dst []byte, value any) ([]byte, bool) {
	raw, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	return append(dst, raw...), err == nil
}

func appendString(dst []byte, text string) []byte { return scan.AppendQuote(dst, text) }

// appendMeta refuses names that are not UTF-8, since two of them may become one.
func appendMeta(dst []byte, meta Meta) (_ []byte, ok bool) {
	dst = append(dst, '{')
	for name, value := range meta {
		dst = append(appendString(dst, name), ':')
		if dst, ok = appendRaw(dst, value); !ok || !utf8.ValidString(name) {
			return nil, false
		}
		dst = append(dst, ',')
	}
	return closed(dst), true
}

// appendStrings appends an object of strings, in no order.
func appendStrings(dst []byte, all map[string]string) (_ []byte, ok bool) {
	dst = append(dst, '{')
	for name, value := range all {
		if !utf8.ValidString(name) { // as in appendMeta
			return nil, false
		}
		dst = append(appendString(append(appendString(dst, name), ':'), value), ',')
	}
	return closed(dst), true
}

// appendTexts appends an array of strings. Nil is an empty array.
func appendTexts[S ~string](dst []byte, all []S) []byte {
	dst = append(dst, '[')
	for _, text := range all {
		dst = append(appendString(dst, string(text)), ',')
	}
	return closedList(dst)
}

// appendFloat refuses what JSON cannot express.
func appendFloat(dst []byte, n float64) ([]byte, bool) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, false
	}
	return append(dst, jsontext.Float(n).String()...), true
}

func isZeroFloat(n float64) bool { return math.Float64bits(n) == 0 } // -0 is sent

func appendIdentifier(dst []byte, id jsonrpc.ID) ([]byte, bool) {
	return appendRaw(dst, id.Append(nil))
}

// closed ends an object, each of whose members ends with a comma.
func closed(dst []byte) []byte { return endedBy(dst, '}') }

// closedList ends an array, each of whose elements ends with a comma.
func closedList(dst []byte) []byte { return endedBy(dst, ']') }

// endedBy puts the end in place of the last comma, if there is one.
func endedBy(dst []byte, end byte) []byte {
	if last := len(dst) - 1; dst[last] == ',' {
		dst[last] = end
		return dst
	}
	return append(dst, end)
}

// appendContents appends the blocks of a result, each with its type. Nil is an empty array.
func appendContents(dst []byte, blocks Contents) (_ []byte, ok bool) {
	dst = append(dst, '[')
	for _, block := range blocks {
		if dst, ok = appendContent(dst, block); !ok {
			return nil, false
		}
		dst = append(dst, ',')
	}
	return closedList(dst), true
}

// appendContent puts the type in front of the members of a block.
func appendContent(dst []byte, block Content) (_ []byte, ok bool) {
	if text, ok := block.(*TextContent); ok && text.isPlain() {
		return appendText(dst, text.Text), true
	}
	if unknown, ok := block.(*UnknownContent); ok {
		if unknown == nil {
			return nil, false
		}
		return appendRaw(dst, unknown.Raw)
	}
	if block == nil {
		return nil, false
	}
	dst = append(append(append(dst, `{"type":"`...), block.contentType()...), '"')
	at := len(dst)
	switch block := block.(type) {
	case *TextContent:
		dst, ok = appendTextContent(dst, block)
	case *ImageContent:
		dst, ok = appendImageContent(dst, block)
	case *AudioContent:
		dst, ok = appendAudioContent(dst, block)
	case *EmbeddedResource:
		dst, ok = appendEmbeddedResource(dst, block)
	case *ResourceLink:
		dst, ok = appendResourceLink(dst, block)
	default:
		return nil, false
	}
	if !ok {
		return nil, false
	}
	dst[at] = ',' // every block has a member of its own
	return dst, true
}

func appendPromptMessage(dst []byte, from *PromptMessage) (_ []byte, ok bool) {
	dst = append(appendString(append(dst, `{"role":`...), string(from.Role)), `,"content":`...)
	if dst, ok = appendContent(dst, from.Content); !ok {
		return nil, false
	}
	return append(dst, '}'), true
}

// The functions that begin with size return about how many bytes a value takes on the wire. Too
// few cost a second allocation, too many only memory.

func sizeMeta(meta Meta) (size int) {
	for name, value := range meta {
		size += len(name) + len(value) + 4
	}
	return size
}

func sizeStrings(all map[string]string) (size int) {
	for name, value := range all {
		size += len(name) + len(value) + 8
	}
	return size
}

func sizeTexts[S ~string](all []S) (size int) {
	for _, text := range all {
		size += len(text) + 4
	}
	return size
}

// sizeContents estimates how many bytes the blocks take.
func sizeContents(blocks Contents) (size int) {
	for _, block := range blocks {
		size += sizeContent(block)
	}
	return size
}

func sizeContent(block Content) int {
	switch block := block.(type) {
	case *TextContent:
		return len(`{"type":"text"},`) + sizeTextContent(block)
	case *ImageContent:
		return len(`{"type":"image"},`) + sizeImageContent(block)
	case *AudioContent:
		return len(`{"type":"audio"},`) + sizeAudioContent(block)
	case *EmbeddedResource:
		return len(`{"type":"resource"},`) + sizeEmbeddedResource(block)
	case *ResourceLink:
		return len(`{"type":"resource_link"},`) + sizeResourceLink(block)
	default:
		return 256
	}
}

func sizePromptMessage(from *PromptMessage) int { return 32 + sizeContent(from.Content) }
