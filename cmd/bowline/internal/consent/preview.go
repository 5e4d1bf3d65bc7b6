package consent

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

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/internal/redact"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/tailscale/hujson"
)

// preview describes the servers of a file, one on each line. It shows the settings as they are
// written: a variable with its default, which runs if nobody sets the variable, and without its
// value, which may be a secret. Of env and headers it shows the names alone. In arguments and
// addresses it masks the credentials that it recognises, but nothing that could run.
func preview(path string, text []byte) string {
	file, err := mcpjson.Parse(path, text)
	if err != nil {
		return render.Indented(err.Error())
	}
	servers, err := writtenServers(file.Text())
	if err != nil {
		return render.Indented(err.Error())
	}
	var lines []string
	for _, name := range file.Names() {
		lines = append(lines, fmt.Sprintf("  %s: %s", render.Flat(name), render.Flat(describeServer(servers[name]))))
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
	for _, list := range []string{"mcpServers", "servers", "context_servers"} {
		all, _ := file[list].(map[string]any)
		maps.Copy(servers, all)
	}
	return servers, nil
}

// describeServer returns what a server starts, or what goes to which address. It names every
// variable and every header, and shows no value of them.
func describeServer(server any) string {
	set := settingsOf(server)
	switch address := cmp.Or(set["httpUrl"], set["serverUrl"], set["url"]); {
	case set["command"] != nil:
		return describeCommand(set)
	case address != nil:
		own, _ := set["bowline"].(map[string]any)
		var with []string
		if set["headers"] != nil {
			with = append(with, "headers "+namesOf(set["headers"]))
		}
		if own["auth"] != nil {
			with = append(with, "auth "+asWritten(loginWithoutSecrets(own["auth"])))
		}
		return described(maskedAddress(asWritten(address)), with)
	default:
		return notShown
	}
}

// settingsOf returns the settings of an entry. Those in a command that is an object are in the place of the others, as for package mcpjson.
func settingsOf(server any) map[string]any {
	set, _ := server.(map[string]any)
	command, ok := set["command"].(map[string]any)
	if !ok {
		return set
	}
	set = maps.Clone(set)
	set["command"] = command["path"]
	for _, name := range []string{"args", "env"} {
		if command[name] != nil {
			set[name] = command[name]
		}
	}
	return set
}

const notShown = "(cannot be shown: read the file)"

func describeCommand(set map[string]any) string {
	words := []any{set["command"]}
	if args, ok := set["args"].([]any); ok {
		words = append(words, args...)
	} else if set["args"] != nil {
		words = append(words, set["args"])
	}
	var surroundings []string
	if set["envFile"] != nil {
		surroundings = append(surroundings, "envFile "+masked(asWritten(set["envFile"])))
	}
	if set["env"] != nil {
		surroundings = append(surroundings, "env "+namesOf(set["env"]))
	}
	directory, _ := set["cwd"].(string)
	shown := described(maskedCommand(words, strings.ReplaceAll(directory, "${workspaceFolder}", ".")), surroundings)
	if set["cwd"] != nil {
		shown += "  in " + masked(asWritten(set["cwd"]))
	}
	return shown
}

// namesOf returns the names of variables or headers.
func namesOf(values any) string {
	all, ok := values.(map[string]any)
	if !ok {
		return notShown
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names = append(names, asWritten(name))
	}
	return strings.Join(names, ", ")
}

// loginWithoutSecrets returns the settings of a login without its secrets.
func loginWithoutSecrets(auth any) any {
	settings, ok := auth.(map[string]any)
	if !ok {
		return notShown
	}
	shown := make(map[string]any, len(settings))
	for name, value := range settings {
		text, isText := value.(string)
		switch {
		case secretName().MatchString(name):
			shown[name] = redact.Mark
		case isText:
			shown[name] = masked(text)
		default:
			shown[name] = value
		}
	}
	return shown
}

func described(what string, with []string) string {
	if len(with) == 0 {
		return what
	}
	return what + "  with " + strings.Join(with, "; ")
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
