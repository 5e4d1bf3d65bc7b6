package stores

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
)

// agreeWithMap saves, deletes and lists at random.
func (s *tasks) agreeWithMap(rt *rapid.T) {
	model, saves := map[string]*server.TaskRecord{}, 0
	owners, ids := []string{"", "u", "v"}, []string{"1", "a.1", "a.2", "b.1", "b.2", "B.1"}
	store := func(rt *rapid.T) server.TaskStore { return s.stores()[rapid.IntRange(0, 1).Draw(rt, "store")] }
	id := func(rt *rapid.T) string { return rapid.SampledFrom(ids).Draw(rt, "id") }
	list := func(owner string) (all []*server.TaskRecord) {
		for _, r := range model {
			if r.Owner == owner {
				all = append(all, r)
			}
		}
		slices.SortFunc(all, func(a, b *server.TaskRecord) int {
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Task.TaskID, b.Task.TaskID))
		})
		return all
	}
	rt.Repeat(map[string]func(*rapid.T){
		"save": func(rt *rapid.T) {
			saves++
			r := taskOf(rapid.SampledFrom(owners).Draw(rt, "owner"), id(rt), rapid.IntRange(0, 2).Draw(rt, "created"))
			if before := model[r.Task.TaskID]; before != nil { // a task has one owner and one beginning
				r.Owner, r.Client, r.Created = before.Owner, before.Client, before.Created
			}
			r.Tool = fmt.Sprint(saves)
			s.save(store(rt), r)
			model[r.Task.TaskID] = r
		},
		"delete": func(rt *rapid.T) {
			gone := id(rt)
			s.delete(store(rt), gone)
			delete(model, gone)
		},
		"list": func(rt *rapid.T) {
			owner, after, limit := rapid.SampledFrom(owners).Draw(rt, "owner"), rapid.SampledFrom(append(ids, "")).Draw(rt, "after"), rapid.IntRange(1, 4).Draw(rt, "limit")
			all := list(owner)
			if after != "" {
				at := slices.IndexFunc(all, func(r *server.TaskRecord) bool { return r.Task.TaskID == after })
				if at < 0 {
					s.wantNoList(owner, after)
					return
				}
				all = all[at+1:]
			}
			s.wantList(owner, after, limit, all[:min(limit, len(all))]...)
		},
		"load": func(rt *rapid.T) {
			one := id(rt)
			if r := model[one]; r != nil {
				s.want(r)
			} else {
				s.wantNone(one)
			}
		},
	})
	for _, owner := range owners {
		s.wantList(owner, "", len(ids), list(owner)...)
	}
}
