package gateway_test

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

const (
	ableToAll = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}`
	accepted  = `{"action":"accept","content":{"text":"yes"}}`
	declined  = `{"action":"decline"}`
	sampled   = `{"role":"assistant","model":"m","content":{"type":"text","text":"sampled"}}`
	rooted    = `{"roots":[{"uri":"file:///home","name":"home"}]}`
)

// playQuestions is what clients of both eras are asked by servers of both eras.
func playQuestions(s *stage) {
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest}
	addAskers(s.cast("a"))
	addAskers(s.cast("b"))
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}}}`)
	s.step("Ada (legacy) and Bob (modern) come, who can be asked, and Carl, who cannot")
	ada := s.enters("ada", protocol.LatestLegacy, ableToAll)
	synctest.Wait()
	carl := s.enters("carl", protocol.LatestLegacy, `{}`)
	bob := s.enters("bob", protocol.Latest, ableToAll)
	for _, of := range []string{"a", "b"} {
		s.step("Ada answers two questions of %s, declines one, cancels one, and answers one with an error", of)
		ada.calls(of+"__form-waits", `{"Ask":["first","second"]}`)
		ada.answers(accepted)
		ada.answers(accepted)
		for _, answer := range []string{declined, `{"action":"cancel"}`, `{"code":-32000,"message":"no"}`, `{"action":"maybe"}`} {
			ada.calls(of+"__form-waits", `{"Ask":["third"]}`)
			ada.answers(answer)
		}
		s.step("Ada opens a page for %s, samples, and shows roots", of)
		ada.calls(of+"__url-waits", `{}`)
		ada.answers(`{"action":"accept"}`)
		ada.calls(of+"__sample-waits", `{}`)
		ada.answers(sampled)
		ada.calls(of+"__roots-waits", `{}`)
		ada.answers(rooted)
		s.step("Bob answers two questions of %s, and declines one", of)
		bob.calls(of+"__form-waits", `{"Ask":["first","second"]}`)
		bob.repeats(accepted)
		bob.repeats(accepted)
		bob.calls(of+"__form-reruns", `{"Ask":["third"]}`)
		bob.repeats(declined)
		s.step("Bob opens a page for %s, samples, and shows roots", of)
		bob.calls(of+"__url-waits", `{}`)
		bob.repeats(`{"action":"accept"}`)
		bob.calls(of+"__sample-waits", `{}`)
		bob.repeats(sampled)
		bob.calls(of+"__roots-reruns", `{}`)
		bob.repeats(rooted)
		s.step("Carl cannot be asked by %s", of)
		for _, tool := range []string{"form-waits", "url-waits", "sample-waits", "roots-waits"} {
			carl.calls(of+"__"+tool, `{"Ask":["first"]}`)
			synctest.Wait()
		}
	}
	s.metrics()
	s.step("Bob's state is changed, used twice, and too old")
	bob.calls("a__form-waits", `{"Ask":["first"]}`)
	synctest.Wait()
	bob.mu.Lock()
	whole := bob.state
	bob.state = whole[:len(whole)-4] + "AAAA"
	bob.mu.Unlock()
	bob.repeats(accepted)
	bob.mu.Lock()
	bob.state = whole
	bob.mu.Unlock()
	bob.repeats(accepted)
	bob.repeats(accepted)
	bob.calls("b__form-waits", `{"Ask":["late"]}`)
	synctest.Wait()
	s.report()
	pass(30 * time.Minute)
	bob.repeats(accepted)
	s.step("Ada's answer is late: she has cancelled the call")
	ada.calls("b__form-waits", `{"Ask":["late"]}`)
	synctest.Wait()
	s.report()
	ada.tells("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, ada.next))
	ada.answers(accepted)
	s.step("Two clients call a at the same time, and nobody knows whom it asks")
	carl.calls("a__slow", `{"n":60}`)
	ada.calls("a__form-waits", `{"Ask":["whose"]}`)
	bob.calls("b__form-waits", `{"Ask":["mine"]}`)
	bob.repeats(accepted)
	pass(time.Minute)
	s.metrics()
	s.step("Ada's roots change")
	ada.tells("notifications/roots/list_changed", `{}`)
	pass(time.Second)
}

// playTasks is tasks of both eras: each client has those of servers of its own.
func playTasks(s *stage) {
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest}
	releases := make(map[string]chan struct{})
	for _, name := range []string{"a", "b"} {
		s.servers[name], releases[name] = taskServer()
	}
	s.identity = "token ada"
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"idleStop":"20m"}}`)
	s.step("Ada comes twice, as a legacy and as a modern client; Bob comes with a login of his, and one without any")
	ada := s.enters("ada", protocol.LatestLegacy, `{"elicitation":{},"tasks":{"list":{},"cancel":{}}}`)
	modern := s.enters("modern", protocol.Latest, `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	s.identity = "token bob"
	bob := s.enters("bob", protocol.LatestLegacy, `{}`)
	s.identity = ""
	carl := s.enters("carl", protocol.Latest, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	s.step("Ada begins tasks at the legacy server, and asks how they are")
	ada.asksTask("a__hold")
	ada.asks("tasks/get", `{"taskId":`+ada.tasks(0)+`}`)
	ada.asks("tasks/list", `{}`)
	pass(time.Second)
	ada.asksTask("a__must")
	ada.asks("tasks/result", `{"taskId":`+ada.tasks(1)+`}`)
	ada.asks("tasks/result", `{"taskId":`+ada.tasks(0)+`}`)
	pass(time.Second)
	close(releases["a"])
	pass(time.Second)
	s.step("Ada's tasks ask, fail, are cancelled, and cannot be")
	ada.asksTask("a__ask")
	ada.asks("tasks/result", `{"taskId":`+ada.tasks(2)+`}`)
	ada.answers(accepted)
	pass(time.Second)
	ada.asksTask("a__fail")
	pass(time.Second)
	ada.asks("tasks/result", `{"taskId":`+ada.tasks(3)+`}`)
	ada.asks("tasks/cancel", `{"taskId":`+ada.tasks(0)+`}`)
	ada.asksTask("a__plain")
	ada.asks("tools/call", `{"name":"a__must","arguments":{}}`)
	ada.asksTask("b__hold")
	ada.asks("tasks/get", `{"taskId":"none"}`)
	s.step("Bob and a modern client look for Ada's tasks")
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		bob.asks(method, `{"taskId":`+ada.tasks(0)+`}`)
	}
	bob.asks("tasks/list", `{}`)
	modern.asks("tasks/get", `{"taskId":`+ada.tasks(0)+`}`)
	s.step("A modern client begins tasks at the modern server")
	for _, tool := range []string{"hold", "must", "fail", "plain"} {
		modern.calls("b__"+tool, `{}`)
	}
	modern.asks("tasks/get", `{"taskId":`+modern.tasks(0)+`}`)
	pass(time.Second)
	for i := range 3 {
		modern.asks("tasks/get", `{"taskId":`+modern.tasks(i)+`}`)
	}
	carl.asks("tasks/get", `{"taskId":`+modern.tasks(0)+`}`)
	carl.asks("tasks/update", `{"taskId":`+modern.tasks(0)+`,"inputResponses":{}}`)
	s.step("A task asks a modern client")
	modern.calls("b__ask", `{}`)
	pass(time.Second)
	modern.asks("tasks/get", `{"taskId":`+modern.tasks(3)+`}`)
	synctest.Wait()
	modern.asks("tasks/update", `{"taskId":`+modern.tasks(3)+`,"inputResponses":{"1":`+accepted+`}}`)
	pass(time.Second)
	modern.asks("tasks/get", `{"taskId":`+modern.tasks(3)+`}`)
	modern.asks("tasks/cancel", `{"taskId":`+modern.tasks(0)+`}`)
	modern.asks("tasks/get", `{"taskId":`+modern.tasks(0)+`}`)
	s.step("Carl has a task, and b dies")
	carl.calls("b__hold", `{}`)
	synctest.Wait()
	s.kill("b", true)
	pass(5 * time.Second)
	carl.asks("tasks/get", `{"taskId":`+carl.tasks(0)+`}`)
	carl.asks("tasks/cancel", `{"taskId":`+carl.tasks(0)+`}`)
	s.step("An hour later the servers sleep")
	pass(time.Hour)
	ada.asks("tasks/list", `{}`)
	ada.asks("tasks/get", `{"taskId":`+ada.tasks(0)+`}`)
	s.metrics()
	close(releases["b"])
}

// asksTask calls a tool as a task of 2025-11-25.
func (a *actor) asksTask(tool string) {
	a.asks(protocol.MethodCallTool, fmt.Sprintf(`{"name":%q,"arguments":{},"task":{"ttl":600000}}`, tool))
}

// tasks returns the id of one of its tasks, in the order in which they have begun.
func (a *actor) tasks(i int) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if i >= len(a.begun) {
		return `"none"`
	}
	return fmt.Sprintf("%q", a.begun[i])
}
