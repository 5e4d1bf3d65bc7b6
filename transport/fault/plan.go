package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Plan says what goes wrong on the links of a transport. The zero Plan injects
// no fault.
type Plan struct {
	Seed      uint64        // the seed of all random choices
	Faults    []Fault       // for each frame, only the first fault that applies is injected
	FailOpens int           // how many opens fail first, with an *InjectedError
	SlowClose time.Duration // how much longer Close takes, whatever its grace
}

// A Fault is applied to the frames that At names, and to other frames at random.
type Fault struct {
	Kind        Kind
	Direction   Direction
	Link        int           // the number of the link, counted from 1; default: every link
	At          []int         // the numbers of frames in that direction, counted from 1
	Probability float64       // the probability for every other frame, from 0 to 1
	After       int           // how many frames at the start of a link Probability spares, for example a handshake
	Frames      int           // Delay, Reorder: how many later frames may overtake; Flood: how many to add; default: 8
	For         time.Duration // Delay, Reorder, Stall, Busy: the longest time; CutStream: StreamLoss.Delay; default: 100 ms
}

// A Direction is seen from the side whose link is wrapped.
type Direction uint8

const (
	Inbound  Direction = iota // frames that this side receives
	Outbound                  // frames that this side sends
)

func (d Direction) String() string { return [...]string{"inbound", "outbound"}[d] }

// A Kind is one way for a link to go wrong.
type Kind string

const (
	Drop      Kind = "drop"      // the frame is lost
	Delay     Kind = "delay"     // the frame comes after Frames later frames, or after the time For
	Reorder   Kind = "reorder"   // the same with a random number of frames and a random time
	Duplicate Kind = "duplicate" // the frame comes twice
	Truncate  Kind = "truncate"  // the end of the frame is lost
	Corrupt   Kind = "corrupt"   // one byte becomes zero; that is not JSON, so the frame cannot become another message
	Stall     Kind = "stall"     // the frame, and all frames after it, wait for the time For
	HalfOpen  Kind = "half-open" // from here on nothing arrives, what is sent is lost, and the link reports no loss
	Flood     Kind = "flood"     // Frames notifications that nobody has sent follow the frame
	Forge     Kind = "forge"     // a response to a request that nobody has made follows the frame
	Die       Kind = "die"       // the link is lost with this frame, which counts neither as sent nor as unsent
	Busy      Kind = "busy"      // Send returns ErrBusy for the time For, once, before it takes the frame; outbound only

	// These faults hit one stream, and inbound frames only.
	LoseStream Kind = "lose stream" // the stream is lost with this frame, for good; no effect on Main
	CutStream  Kind = "cut stream"  // the stream is lost before this frame, and continues with it when it is resumed
	MuteStream Kind = "mute stream" // from here on nothing arrives on the stream, and its loss is not reported

	FailOpen  Kind = "fail open"  // Plan.FailOpens
	SlowClose Kind = "slow close" // Plan.SlowClose
	Break     Kind = "break"      // Transport.Break
)

// frameKinds are the kinds that a Fault may have.
var frameKinds = []Kind{
	Drop, Delay, Reorder, Duplicate, Truncate, Corrupt, Stall, HalfOpen, Flood, Forge, Die, Busy,
	LoseStream, CutStream, MuteStream,
}

// oneWay returns the direction of a kind that exists in one direction only.
func (k Kind) oneWay() (d Direction, is bool) {
	switch k {
	case Busy:
		return Outbound, true
	case LoseStream, CutStream, MuteStream:
		return Inbound, true
	default:
		return 0, false
	}
}

const (
	defaultFrames = 8
	defaultFor    = 100 * time.Millisecond
)

// withDefaults returns a copy of the plan with its defaults. It panics when the
// plan contains an unknown fault.
func (p Plan) withDefaults() *Plan {
	p.Faults = slices.Clone(p.Faults)
	for i := range p.Faults {
		f := &p.Faults[i]
		way, oneWay := f.Kind.oneWay()
		if !slices.Contains(frameKinds, f.Kind) || f.Direction > Outbound || oneWay && f.Direction != way {
			panic(fmt.Sprintf("fault: no fault %q of %v frames", f.Kind, f.Direction))
		}
		if f.Frames <= 0 {
			f.Frames = defaultFrames
		}
		if f.For <= 0 {
			f.For = defaultFor
		}
	}
	return &p
}

// at returns the fault that hits a frame, and the random source for its details;
// nil when none does.
func (p *Plan) at(link int, d Direction, frame int) (*Fault, *rand.Rand) {
	for i := range p.Faults {
		f := &p.Faults[i]
		if f.Direction != d || f.Link != 0 && f.Link != link {
			continue
		}
		chance := rand.New(rand.NewPCG(p.Seed, mix(uint64(i), uint64(link), uint64(d), uint64(frame))))
		if hit := frame > f.After && chance.Float64() < f.Probability; hit || slices.Contains(f.At, frame) {
			return f, chance
		}
	}
	return nil, nil
}

// mix hashes numbers (the finalizer of SplitMix64).
func mix(numbers ...uint64) (mixed uint64) {
	for _, n := range numbers {
		mixed += n + 0x9e3779b97f4a7c15
		mixed = (mixed ^ mixed>>30) * 0xbf58476d1ce4e5b9
		mixed = (mixed ^ mixed>>27) * 0x94d049bb133111eb
		mixed ^= mixed >> 31
	}
	return mixed
}

// overtaken returns after how many later frames, or what time, a held frame comes.
func (f *Fault) overtaken(chance *rand.Rand) (frames int, wait time.Duration) {
	if f.Kind == Delay {
		return f.Frames, f.For
	}
	return 1 + chance.IntN(f.Frames), 1 + time.Duration(chance.Int64N(int64(f.For)))
}

// spoiled returns a copy of the frame, truncated or with a zero byte.
func spoiled(kind Kind, frame []byte, chance *rand.Rand) []byte {
	frame = slices.Clone(frame)
	if len(frame) == 0 {
		return frame
	}
	at := chance.IntN(len(frame))
	if kind == Truncate {
		return frame[:at]
	}
	frame[at] = 0
	return frame
}

// noise returns a notification that nobody has sent.
func noise(n int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"fault/flood","params":{"n":%d}}`, n)
}

// forged returns a response to a request that nobody has made: its id is too
// large, too small, or not a number.
func forged(chance *rand.Rand) []byte {
	id := [...]string{"9007199254740991", "-1", "0", `"1"`, "null"}[chance.IntN(5)]
	if id == "null" {
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"forged"}}`)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":"forged"}`, id)
}
