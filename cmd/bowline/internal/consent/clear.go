package consent

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/mcpjson"
)

var (
	// keyName matches names such as STRIPE_KEY. What is shown before consent must not depend on it: such a name may be that of a key of a keyboard.
	keyName     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)_key$`) })
	variable    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{[^}:]*(:[^-}][^}:]*)?(:-)?([^}]*)\}`) })
	schemeAlone = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?i:basic|bearer|token) *$`) })
)

// InClear returns where a file has secrets in clear text, such as github.env.GITHUB_TOKEN: the variables and headers of servers whose names say that they are secret. It returns
// no value. Servers are in file order.
func InClear(file *mcpjson.File) (paths []string) {
	servers, err := writtenServers(file.Text())
	if err != nil {
		return nil // nothing of it is used
	}
	for _, name := range file.Names() {
		set := settingsOf(servers[name])
		for _, key := range []string{"env", "headers"} {
			values, _ := set[key].(map[string]any)
			for _, of := range slices.Sorted(maps.Keys(values)) {
				if isInClear(of, values[of]) {
					paths = append(paths, name+"."+key+"."+of)
				}
			}
		}
	}
	return paths
}

// isInClear reports whether a name says that its value is a secret, and the value is in the file: as it is, or as the default of a variable. A number whose name has
// "token" may be how many a model may use, and a boolean is a switch.
func isInClear(name string, value any) bool {
	if !isSecretName(name) && !keyName().MatchString(name) {
		return false
	}
	text, isText := value.(string)
	if number, isNumber := value.(json.Number); isNumber {
		text, isText = number.String(), true
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && strings.Contains(strings.ToLower(name), "token") {
		return false
	}
	if _, err := strconv.ParseBool(text); err == nil || !isText {
		return false
	}
	rest := strings.TrimSpace(variable().ReplaceAllString(text, "$3"))
	return rest != "" && !schemeAlone().MatchString(rest) && !strings.HasPrefix(rest, "$")
}
