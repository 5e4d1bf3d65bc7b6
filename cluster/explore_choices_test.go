package cluster

import "slices"

// choices appends what may happen next.
func (env *environment) choices(to []choice) []choice {
	may := func(kind choiceKind, at int, possible bool) {
		if possible && slices.Contains(env.plan.events, kind) {
			to = append(to, choice{kind, uint8(at)})
		}
	}
	may(ticks, 0, true)
	for i, m := range env.messages {
		may(arrives, i, !m.answered)
		may(completes, i, !m.answered && !m.abandoned && !env.processes[m.from].paused)
		may(answers, i, m.answered && !env.processes[m.from].paused)
		may(losesAnswer, i, m.answered)
		may(abandons, i, !m.answered && !m.abandoned)
	}
	for p := range env.processes {
		node := &env.processes[p]
		may(shows, p, node.runs() && !node.cut && len(node.queue) > 0)
		may(compacts, p, node.runs() && env.plan.lagging[p] && node.compactable() >= 0)
		may(pauses, p, node.runs())
		may(resumes, p, node.started && node.paused && !node.crashed)
		may(claimsKey, p, p < 2 && node.runs() && node.claiming == unclaimed && node.number < 3)
		may(releasesKey, p, node.runs() && node.claiming == claimed && !node.claim.over)
		may(saves, p, node.runs() && p == 0)
		may(takes, p, node.runs() && env.mayTake(p))
		may(takesStale, p, node.runs() && env.mayTake(p) && env.recordBefore.exists && env.recordBefore != env.record)
		may(denies, p, node.runs() && env.ownerIsDown())
		may(crashes, p, p == 0 && node.started && !node.crashed)
		may(cuts, p, p == 0 && node.runs() && !node.cut)
		may(heals, p, node.cut)
		may(joins, p, node.runs() && p == 1)
	}
	may(starts, 2, !env.processes[2].started && env.restarts())
	return to
}

// mayTake reports whether a process could want the session.
func (env *environment) mayTake(p int) bool {
	return env.record.writer != p && p != 0 && !slices.ContainsFunc(env.messages, func(m message) bool { return m.kind == taking && m.from == p })
}

// restarts reports whether another process with the name of the first may start: always if it
// is about the name alone.
func (env *environment) restarts() bool { return !env.plan.session || env.processes[0].crashed }

// ownerIsDown reports whether the owner of the session has ended, and nobody has its name.
func (env *environment) ownerIsDown() bool {
	return env.record.exists && env.processes[env.record.writer].crashed && (modelNames[env.record.writer] != "a" || !env.processes[2].started)
}

func (env *environment) apply(c choice) {
	env.digest = 0
	p := int(c.at)
	switch c.kind {
	case ticks:
		env.tick()
	case arrives:
		env.arrive(p)
		if env.messages[p].abandoned {
			env.messages = slices.Delete(env.messages, p, p+1)
		}
	case completes:
		env.arrive(p)
		env.answer(p)
	case answers:
		env.answer(p)
	case losesAnswer:
		m := env.messages[p]
		env.messages = slices.Delete(env.messages, p, p+1)
		env.lose(m)
	case abandons:
		env.messages[p].abandoned = true
		env.lose(env.messages[p])
	case shows:
		env.show(p)
	case compacts:
		env.processes[p].compact()
	case pauses:
		env.processes[p].paused = true
	case resumes:
		env.processes[p].paused = false
	case claimsKey:
		env.processes[p].claimSrv(env, p)
	case releasesKey:
		env.release(p)
	case saves:
		env.save(p)
	case takes:
		env.tryTake(p, env.record)
	case takesStale:
		env.tryTake(p, env.recordBefore)
	case denies:
		env.processes[p].view.deny(env.ownerOf(env.record))
	case crashes:
		env.processes[p].crashed = true
		env.processes[p].queue = nil
	case starts:
		env.start(p)
	case cuts:
		env.processes[p].cut = true
	case heals:
		env.processes[p].cut = false
	case joins:
		env.relist(p, env.before)
	}
	env.limitLag()
	env.digest = env.revision<<32 ^ env.records<<16 ^ uint64(len(env.messages))
}

func (env *environment) tick() {
	env.now += tick
	for key, v := range env.keys {
		if v.exists && env.now >= v.expires {
			env.say("key %d expires", key)
			env.write(key, stored{})
		}
	}
	for p := range env.processes {
		node := &env.processes[p]
		if !node.started || node.crashed {
			continue
		}
		switch {
		case !env.plan.slow[p]:
			node.clock += tick
		case env.plan.mistake == clockTooSlow:
			node.clock += tick * 16 / 20
		default:
			node.clock += tick * 17 / 20 // 3 s too little in 20
		}
		env.run(p)
	}
}

// release gives up a claim, as Node.release does.
func (env *environment) release(p int) {
	node := &env.processes[p]
	node.claim.over = true
	for i := len(env.messages) - 1; i >= 0; i-- {
		if m := &env.messages[i]; m.from == p && m.kind == forClaim && !m.abandoned {
			m.abandoned = true
			node.claim.flying--
			if m.answered {
				env.messages = slices.Delete(env.messages, i, i+1)
			}
		}
	}
	node.claiming = releasing
	env.send(message{from: p, kind: frees, attempt: attempt{base: node.claim.revision}})
}

// save lets a process write the session, if it is its own.
func (env *environment) save(p int) {
	node := &env.processes[p]
	if env.record.exists && env.record.writer != p || !node.lease.held(node.clock) {
		return
	}
	env.putRecord(stored{exists: true, writer: p, number: env.term(node.lease.term())})
}

func (env *environment) putRecord(v stored) {
	env.records++
	v.revision = env.records
	env.recordBefore, env.record = env.record, v
}

// ownerOf returns the owner that a record names.
func (env *environment) ownerOf(record stored) owner {
	return owner{modelNames[record.writer], env.processes[record.writer].view.self.Epoch, record.number}
}

// tryTake lets a process take the session if its record says that it may.
func (env *environment) tryTake(p int, record stored) {
	node := &env.processes[p]
	of := env.ownerOf(record)
	holding := env.believes(p, &node.lease)
	if env.plan.mistake == confirmsAlways {
		node.view.confirmed = node.clock
	}
	judged := node.view.judge(node.clock, holding, of)
	switch seen := env.before[leaseOf(record.writer)]; env.plan.mistake {
	case believesReads:
		if holding && (!seen.exists || seen.writer != record.writer) {
			judged = dead
		}
	case doesNotWait:
		if s := node.view.nodes[of.Node]; holding && (s == nil || s.owner.Epoch != of.Epoch) {
			judged = dead
		}
	}
	env.say("%s judges %v: %d", env.nameOf(p), of, judged)
	if judged == dead {
		env.send(message{from: p, kind: taking, attempt: attempt{base: record.revision}, number: env.term(node.lease.term())})
	}
}

// take replaces the record of the session, and checks that its owner has not got its lease.
func (env *environment) take(m *message) {
	if env.record.revision != m.attempt.base && env.plan.mistake != takesByPut || env.record.writer == m.from {
		return
	}
	lease := env.keys[leaseOf(env.record.writer)]
	if !env.processes[env.record.writer].crashed && lease.exists && lease.writer == env.record.writer && lease.number == env.record.number {
		env.violated("the session is taken from %v, which has its lease", env.ownerOf(env.record))
	}
	env.putRecord(stored{exists: true, writer: m.from, number: m.number})
	m.done = true
}
