package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/tailscale/hujson"
)

// preview describes the servers of a file, one on each line. It shows the settings as they are
// written: a variable with its default, which runs if nobody sets the variable, and without its
// value, which may be a secret.
func preview(path string, text []byte) string {
	file, err := mcpjson.Parse(path, text)
	if err != nil {
		return indented(err.Error())
	}
	servers, err := writtenServers(file.Text())
	if err != nil {
		return indented(err.Error())
	}
	var lines []string
	for _, name := range file.Names() {
		lines = append(lines, fmt.Sprintf("  %s: %s", flat(name), flat(describeServer(servers[name]))))
	}
	return cmp.Or(strings.Join(lines, "\n"), "  none")
}

// writtenServers returns the servers of a file by name, without replacing anything. It decodes
// into maps, because names that differ only in case are different settings.
func writtenServers(text []byte) (map[string]any, error) {
	standard, err := hujson.Standardize(append(text, '\n'))
	if err != nil {
		return nil, err
	}
	var file map[string]any
	decoder := json.NewDecoder(bytes.NewReader(standard))
	decoder.UseNumber()
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	servers := make(map[string]any)
	for _, list := range []string{"mcpServers", "servers"} {
		all, _ := file[list].(map[string]any)
		maps.Copy(servers, all)
	}
	return servers, nil
}

// describeServer returns what a server starts, or what goes to which address.
func describeServer(server any) string {
	set, _ := server.(map[string]any)
	switch address := cmp.Or(set["httpUrl"], set["url"]); {
	case set["command"] != nil:
		return describeCommand(set)
	case address != nil:
		own, _ := set["bowline"].(map[string]any)
		var with []string
		if set["headers"] != nil {
			with = append(with, "headers "+asWritten(set["headers"]))
		}
		if own["auth"] != nil {
			with = append(with, "auth "+asWritten(own["auth"]))
		}
		return described(asWritten(address), with)
	default:
		return "(cannot be shown: read the file)"
	}
}

func describeCommand(set map[string]any) string {
	words := []string{asWritten(set["command"])}
	if args, ok := set["args"].([]any); ok {
		for _, arg := range args {
			words = append(words, asWritten(arg))
		}
	} else if set["args"] != nil {
		words = append(words, asWritten(set["args"]))
	}
	var surroundings []string
	if set["envFile"] != nil {
		surroundings = append(surroundings, asWritten(set["envFile"]))
	}
	if env, ok := set["env"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			surroundings = append(surroundings, asWritten(name)+"="+asWritten(env[name]))
		}
	} else if set["env"] != nil {
		surroundings = append(surroundings, asWritten(set["env"]))
	}
	shown := described(strings.Join(words, " "), surroundings)
	if set["cwd"] != nil {
		shown += "  in " + asWritten(set["cwd"])
	}
	return shown
}

func described(what string, with []string) string {
	if len(with) == 0 {
		return what
	}
	return what + "  with " + strings.Join(with, " ")
}

// asWritten returns a value as one word: a text as it is, or in quotes if it would otherwise
// look like several words, and anything else as JSON.
func asWritten(value any) string {
	if text, ok := value.(string); ok {
		if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r == '"' || unicode.IsSpace(r) }) {
			return strconv.Quote(text)
		}
		return text
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err.Error() // it was decoded, so it can be encoded
	}
	return strings.TrimSuffix(out.String(), "\n")
}
