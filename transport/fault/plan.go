package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Plan is what goes wrong on the links of a transport. The zero Plan is
// nothing.
type Plan struct {
	Seed      uint64        // of every chance
	Faults    []Fault       // the first that hits a frame is done to it, and no other
	FailOpens int           // the first opens that fail, with an *InjectedError
	SlowClose time.Duration // how much longer Close takes than it needs to, whatever its grace
}

// A Fault is done to the frames it names, and to others by chance.
type Fault struct {
	Kind        Kind
	Direction   Direction
	Link        int           // of the transport's links, counted from 1; 0 means every one
	At          []int         // frames of a link in that direction, counted from 1
	Probability float64       // of any other frame
	After       int           // so many frames of a link, those of a handshake for instance, are safe from chance
	Frames      int           // Delay, Reorder: how many later frames overtake at most; Flood: how many there are; default 8
	For         time.Duration // Delay, Reorder, Stall, Busy: how long at most; CutStream: what the peer asks for; default 100 ms
}

// A Direction is seen from the side that is wrapped.
type Direction uint8

const (
	Inbound  Direction = iota // frames that it receives
	Outbound                  // frames that it sends
)

func (d Direction) String() string { return [...]string{"inbound", "outbound"}[d] }

// A Kind is one way for a link to go wrong.
type Kind string

const (
	Drop      Kind = "drop"      // the frame is lost
	Delay     Kind = "delay"     // it comes when Frames later ones have come, or For has passed
	Reorder   Kind = "reorder"   // it is delayed by chance, by 1 to Frames later ones and For at most
	Duplicate Kind = "duplicate" // it comes twice
	Truncate  Kind = "truncate"  // its end is lost
	Corrupt   Kind = "corrupt"   // one byte of it is zero, which is none of JSON's, so that it is no other message
	Stall     Kind = "stall"     // it, and what is behind it, comes when For has passed
	HalfOpen  Kind = "half-open" // from here on what is sent is lost, nothing arrives, and no loss is told
	Flood     Kind = "flood"     // it is followed by Frames notifications that nobody has sent
	Forge     Kind = "forge"     // it is followed by an answer to a request that nobody has made
	Die       Kind = "die"       // the link is lost with this frame, which was neither sent nor unsent
	Busy      Kind = "busy"      // the link is busy for For, once, before it takes the frame; outbound only

	// These are of one stream, and inbound only.
	LoseStream Kind = "lose stream" // the frame's stream is lost with it, for good; none of Main
	CutStream  Kind = "cut stream"  // its stream is lost before it, and goes on with it once it is resumed
	MuteStream Kind = "mute stream" // from here on nothing arrives on its stream, and no loss of it is told

	FailOpen  Kind = "fail open"  // Plan.FailOpens
	SlowClose Kind = "slow close" // Plan.SlowClose
	Break     Kind = "break"      // Transport.Break
)

// frameKinds are the kinds that a Fault may have.
var frameKinds = []Kind{
	Drop, Delay, Reorder, Duplicate, Truncate, Corrupt, Stall, HalfOpen, Flood, Forge, Die, Busy,
	LoseStream, CutStream, MuteStream,
}

// oneWay says of a kind which is not of both directions of which it is.
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

// withDefaults returns the plan to go by, sharing nothing with p. It panics
// when p names a fault that there is not.
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

// at returns the fault that hits a frame, and the chance for its details; nil
// when none does.
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

// mix spreads numbers that are close to each other (the finalizer of
// SplitMix64).
func mix(numbers ...uint64) (mixed uint64) {
	for _, n := range numbers {
		mixed += n + 0x9e3779b97f4a7c15
		mixed = (mixed ^ mixed>>30) * 0xbf58476d1ce4e5b9
		mixed = (mixed ^ mixed>>27) * 0x94d049bb133111eb
		mixed ^= mixed >> 31
	}
	return mixed
}

// overtaken is after how many later frames a held one comes, and how long.
func (f *Fault) overtaken(chance *rand.Rand) (frames int, wait time.Duration) {
	if f.Kind == Delay {
		return f.Frames, f.For
	}
	return 1 + chance.IntN(f.Frames), 1 + time.Duration(chance.Int64N(int64(f.For)))
}
