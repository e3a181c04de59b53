package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// ModelStats counts one model's sequences and tokens; all but Waiting, Running and Residency only grow.
type ModelStats struct {
	Model              string
	Waiting, Running   int
	Submitted, Refused uint64
	Finished           [Failed + 1]uint64 // by Reason
	Preemptions        uint64
	Steps              uint64
	PromptTokens       uint64 // computed: without prefix hits, with what was computed again
	SampledTokens      uint64
	PrefixQueried      uint64 // tokens looked up in the prefix cache at admission
	PrefixHit          uint64 // and found
	DeviceTime         time.Duration
	Residency          Residency
	Loads, Parks       uint64
	LoadSeconds        float64       // of Loads and of those that failed
	Predicted          time.Duration // of it: what the steps were said to take before they ran
	// StepError is the error of those predictions relative to the time taken, over the last 256 steps:
	// the median and the mean.
	StepError, StepErrorMean float64
	// Late counts sequences whose SLA could not be met any more before they ended; Sellable those that ended well
	// within theirs (an SLA of zero asks for nothing), and SellableTokens what they sampled.
	Late, Sellable, SellableTokens uint64
}

// Stats counts, in the order the models were added.
func (s *Scheduler) Stats() []ModelStats {
	out := make([]ModelStats, len(s.queues))
	for i, q := range s.queues {
		out[i] = q.stats
		out[i].Waiting, out[i].Running = len(q.waiting), len(q.running)
		out[i].StepError, out[i].StepErrorMean = q.model.errors()
		out[i].Residency = q.weights.state
	}
	return out
}

// Verify recounts lists, positions, budgets and the pool, and names the first that is wrong.
func (s *Scheduler) Verify() error {
	if err := s.verifyTails(); err != nil {
		return err
	}
	streaming, plain, promised, holdSeen := 0, 0, 0, s.hold == nil
	for _, q := range s.queues {
		if len(q.running) > q.MaxSeqs {
			return fmt.Errorf("sched: %s: %d running of at most %d", q.Name, len(q.running), q.MaxSeqs)
		}
		for _, list := range [][]*Sequence{q.waiting, q.running} {
			for i, seq := range list {
				if i > 0 && list[i-1].age >= seq.age || seq.queue != q {
					return fmt.Errorf("sched: %s: sequence %d is out of order", q.Name, seq.age)
				}
			}
		}
		blockedSeen := q.blocked == nil
		for _, seq := range q.waiting {
			blockedSeen = blockedSeen || seq == q.blocked
			holdSeen = holdSeen || seq == s.hold
			if seq.promised {
				promised++
			}
			if seq.state != waiting || seq.planned != 0 || seq.pending != 0 || seq.drafting || seq.streaming {
				return fmt.Errorf("sched: %s: sequence %d waits in state %d with %d tokens planned", q.Name, seq.age, seq.state, seq.planned)
			}
			for g := range q.Cache.Config().Groups {
				if n := len(seq.blocks.Blocks(g)); n > 0 {
					return fmt.Errorf("sched: %s: sequence %d waits with %d blocks", q.Name, seq.age, n)
				}
			}
		}
		if err := q.verifyOrder(); err != nil {
			return err
		}
		if !blockedSeen {
			return fmt.Errorf("sched: %s: sequence %d is blocked but not waiting", q.Name, q.blocked.age)
		}
		for _, seq := range q.running {
			if seq.streaming {
				streaming++
			}
			if seq.streaming && seq.plain {
				plain++
			}
			if seq.promised {
				promised++
			}
			if seq.state != running || seq.computed > seq.planned || seq.planned > seq.length+int(seq.pending) ||
				seq.length+int(seq.pending) > len(seq.Prompt)+seq.MaxTokens || seq.pending < 0 || int(seq.quiet) > q.Cache.Quiet(seq.blocks) {
				return fmt.Errorf("sched: %s: sequence %d runs in state %d: %d computed, %d planned, quiet to %d, of %d tokens and %d pending; at most %d and %d",
					q.Name, seq.age, seq.state, seq.computed, seq.planned, seq.quiet, seq.length, seq.pending, len(seq.Prompt), seq.MaxTokens)
			}
			for g, cfg := range q.Cache.Config().Groups {
				sealed, noted := seq.blocks.Tokens(), seq.computed
				if cfg.Kind != kvcache.Recurrent { // else Seal has to hear of each token
					noted = noted / cfg.BlockTokens * cfg.BlockTokens
				}
				if sealed > seq.computed || sealed < noted && !q.Cache.Config().NoPrefixCache {
					return fmt.Errorf("sched: %s: sequence %d has computed %d tokens, and sealed blocks of %d up to %d", q.Name, seq.age, seq.computed, cfg.BlockTokens, sealed)
				}
				if n := len(seq.blocks.Blocks(g)); cfg.Kind != kvcache.Recurrent && n*cfg.BlockTokens < seq.planned {
					return fmt.Errorf("sched: %s: sequence %d has %d blocks for %d tokens", q.Name, seq.age, n, seq.planned)
				}
			}
		}
	}
	if streaming != s.streaming || plain != s.plain || promised != len(s.promises) || !holdSeen {
		return fmt.Errorf("sched: %d streaming, counted %d; %d plain, counted %d; %d promises, counted %d; hold is waiting: %t",
			s.streaming, streaming, s.plain, plain, len(s.promises), promised, holdSeen)
	}
	if err := s.verifyResidency(); err != nil {
		return err
	}
	if len(s.inFlight) > s.limits.InFlight {
		return fmt.Errorf("sched: %d plans in flight of at most %d", len(s.inFlight), s.limits.InFlight)
	}
	if err := s.pool.Verify(); err != nil {
		return err
	}
	if s.runs() == 0 {
		for _, m := range s.pool.Stats().Models {
			if m.Live+m.States > 0 && s.queue(m.Model) != nil {
				return fmt.Errorf("sched: %s: %d live blocks and %d states at rest", m.Model, m.Live, m.States)
			}
		}
	}
	return nil
}

// verifyOrder recounts what waits, what each key has and who wants which TPOT.
func (q *queue) verifyOrder() error {
	held, ordered, streams := map[*account]int{}, 0, 0
	for _, list := range [][]*Sequence{q.waiting, q.running} {
		for _, seq := range list {
			held[seq.account]++
			if seq.sla.TPOT > 0 && !seq.late {
				streams++
			}
			if q.accounts[seq.Key] != seq.account {
				return fmt.Errorf("sched: %s: sequence %d has no account", q.Name, seq.age)
			}
			if seq.place < 0 {
				if seq.state == waiting && !seq.follows() {
					return fmt.Errorf("sched: %s: sequence %d waits for nobody, out of order", q.Name, seq.age)
				}
				continue
			}
			ordered++
			l := &seq.account.lane[seq.lane]
			if seq.state != waiting || seq.lane != q.laneOf(seq) || l.seqs.list[seq.place] != seq || q.lanes[seq.lane].list[l.place] != l {
				return fmt.Errorf("sched: %s: sequence %d is not where it should be in the order", q.Name, seq.age)
			}
			if p := (seq.place - 1) / 2; seq.before(l.seqs.list[p]) {
				return fmt.Errorf("sched: %s: sequence %d should go before %d", q.Name, seq.age, l.seqs.list[p].age)
			}
			if p := (l.place - 1) / 2; l.before(q.lanes[seq.lane].list[p]) {
				return fmt.Errorf("sched: %s: key %q should go before %q", q.Name, seq.Key, q.lanes[seq.lane].list[p].account.key)
			}
		}
	}
	for _, a := range q.accounts {
		if a.held != held[a] {
			return fmt.Errorf("sched: %s: key %q has %d sequences, counted %d", q.Name, a.key, a.held, held[a])
		}
		ordered -= len(a.lane[0].seqs.list) + len(a.lane[1].seqs.list)
	}
	for i, t := range q.targets {
		streams -= t.n
		if t.n < 1 || i > 0 && q.targets[i-1].tpot >= t.tpot {
			return fmt.Errorf("sched: %s: TPOT targets %v", q.Name, q.targets)
		}
	}
	if ordered != 0 || streams != 0 {
		return fmt.Errorf("sched: %s: %d too many in the order, %d too few streams", q.Name, -ordered, streams)
	}
	return nil
}

// verifyResidency recounts the weights on the device.
func (s *Scheduler) verifyResidency() error {
	if sum := s.held(); s.limits.WeightBytes > 0 && sum > s.limits.WeightBytes {
		return fmt.Errorf("sched: %d bytes of weights of at most %d", sum, s.limits.WeightBytes)
	}
	for _, q := range s.queues {
		w := &q.weights
		moves := s.change != nil && (q == s.change.load || slices.Contains(s.change.park, q))
		switch {
		case w.state != Resident && !s.still(q):
			return fmt.Errorf("sched: %s is %s with %d running and %d plans in flight", q.Name, w.state, len(q.running), len(s.inFlight))
		case moves != (w.state == Loading || w.state == Parking):
			return fmt.Errorf("sched: %s is %s; it is being moved: %t", q.Name, w.state, moves)
		case w.leaving && (s.incoming == nil || w.state != Resident):
			return fmt.Errorf("sched: %s leaves for nobody, %s", q.Name, w.state)
		case !q.admits() && (q.blocked != nil || s.hold != nil && s.hold.queue == q):
			return fmt.Errorf("sched: %s is waited for by others, but admits nobody", q.Name)
		}
	}
	return nil
}
