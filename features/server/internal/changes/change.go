package changes

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/bowline-mcp/bowline/protocol"
)

// A Change is something that a client can be notified of: a changed list, resource or
// task. It says what has changed and not how, so equal changes may become one, and a late one is still true.
// Exactly one field is set.
type Change struct {
	list list   // the list; zero for a resource or a task
	uri  string // the URI of the resource; otherwise empty
	task string // the id of the task; otherwise empty
}

// A list is one of the lists that can change, or a set of several.
type list uint8

const (
	toolList list = 1 << iota
	promptList
	resourceList // includes the list of templates
)

// Tools is the change of the list of tools.
func Tools() Change { return Change{list: toolList} }

// Prompts is the change of the list of prompts.
func Prompts() Change { return Change{list: promptList} }

// Resources is the change of the lists of resources and templates.
func Resources() Change { return Change{list: resourceList} }

// Resource is the change of a resource.
func Resource(uri string) Change { return Change{uri: uri} }

// Task is the change of the status of a task.
func Task(id string) Change { return Change{task: id} }

// TaskID returns the id of the task, or "" if the change is of something else.
func (c Change) TaskID() string { return c.task }

// Method returns the notification's method, in the revisions without tasks of 2025-11-25.
func (c Change) Method() string {
	switch {
	case c.list == toolList:
		return protocol.NotificationToolsListChanged
	case c.list == promptList:
		return protocol.NotificationPromptsListChanged
	case c.list == resourceList:
		return protocol.NotificationResourcesListChanged
	case c.task != "":
		return protocol.NotificationTask
	default:
		return protocol.NotificationResourcesUpdated
	}
}

// Params returns the notification's params. Those of a task are its status, which only the
// server knows.
func (c Change) Params(meta protocol.Meta) any {
	switch {
	case c.uri != "":
		return &protocol.ResourceUpdatedParams{NotificationParams: protocol.NotificationParams{Meta: meta}, URI: c.uri}
	case meta != nil:
		return &protocol.NotificationParams{Meta: meta}
	default:
		return nil
	}
}

// A set is a set of changes. If it contains only lists, it needs no map: most clients want no
// more, and each idle session has two sets.
type set struct {
	lists list
	uris  map[string]struct{}
	tasks map[string]struct{}
}

// of returns the map for a resource or a task, and its key in that map.
func (s *set) of(c Change) (in *map[string]struct{}, key string) {
	if c.task != "" {
		return &s.tasks, c.task
	}
	return &s.uris, c.uri
}

func (s *set) add(c Change) {
	if c.list != 0 {
		s.lists |= c.list
		return
	}
	in, key := s.of(c)
	if *in == nil {
		*in = make(map[string]struct{})
	}
	(*in)[key] = struct{}{}
}

func (s *set) remove(c Change) {
	if c.list != 0 {
		s.lists &^= c.list
		return
	}
	in, key := s.of(c)
	delete(*in, key)
}

func (s *set) addSet(other *set) {
	s.lists |= other.lists
	for uri := range other.uris {
		s.add(Resource(uri))
	}
	for id := range other.tasks {
		s.add(Task(id))
	}
}

func (s *set) has(c Change) bool {
	if c.list != 0 {
		return s.lists&c.list != 0
	}
	in, key := s.of(c)
	_, ok := (*in)[key]
	return ok
}

func (s *set) len() int { return bits.OnesCount8(uint8(s.lists)) + len(s.uris) + len(s.tasks) }

// all returns the changes in order, with lists first: who learns of a resource that is new to it has
// heard of the list before.
func (s *set) all() []Change {
	changes := make([]Change, 0, s.len())
	for _, c := range []Change{Tools(), Prompts(), Resources()} {
		if s.has(c) {
			changes = append(changes, c)
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(s.uris)) {
		changes = append(changes, Resource(uri))
	}
	for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
		changes = append(changes, Task(id))
	}
	return changes
}
