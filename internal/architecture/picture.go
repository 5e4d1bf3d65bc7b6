package architecture

import (
	"fmt"
	"slices"
	"strings"
)

// Picture draws the layers as a Mermaid flowchart, the highest first, with the public packages that are in them.
func (t *Tree) Picture() string {
	rooms := t.publicRooms()
	var picture strings.Builder
	picture.WriteString("```mermaid\nflowchart TD\n")
	var chain []string
	for i, l := range slices.Backward(layers) {
		if l.about == "" || len(rooms[i]) == 0 {
			continue
		}
		slices.Sort(rooms[i])
		node := fmt.Sprintf("layer%d", i)
		fmt.Fprintf(&picture, "    %s[\"%s<br>%s\"]\n", node, strings.Join(rooms[i], ", "), l.about)
		chain = append(chain, node)
	}
	fmt.Fprintf(&picture, "    %s\n```\n", strings.Join(chain, " --> "))
	return picture.String()
}

// publicRooms returns the packages to draw in each layer.
func (t *Tree) publicRooms() [][]string {
	rooms := make([][]string, len(layers))
	for _, f := range t.files {
		at := layerOf(f.dir)
		if at < 0 || f.test || layers[at].about == "" || hidden(f.dir) || slices.Contains(rooms[at], f.dir) {
			continue
		}
		rooms[at] = append(rooms[at], f.dir)
	}
	return rooms
}

// hidden reports whether a package is internal to others, or one of many programs.
func hidden(pkg string) bool {
	parts := strings.Split(pkg, "/")
	return slices.Contains(parts, "internal") || len(parts) > 1 && parts[0] == "examples"
}
