// Package sched decides which rows run next: one Scheduler sees every model's waiting and running
// sequences and all cache memory of a device.
//
// It is pure. Time is an argument; there is no clock, log, device, lock or goroutine, and the same
// calls give the same plans. The step loop owns it: Submit what arrived, Cancel what is not wanted
// any more, Plan, execute, Commit, deliver Events.
//
// A step runs one model. Models take turns by device time used (byUrgency); deadlines come there.
// Within a step, every sequence that decodes has a row, one token each. Prompts share what
// is left of the token budget: each gets at least an eighth of it, or all it needs, so a short
// prompt passes by a long one and the long one goes on; while anybody decodes, prompts together
// get no more than ChunkTokens, which bounds the gap that decoding sequences see.
//
// Memory is taken optimistically. To be admitted a sequence needs blocks for all tokens that it
// has, and it is admitted in order of arrival; one that does not fit is overtaken a bounded number
// of times and then nobody younger is admitted anywhere until it fits. When a running sequence
// cannot grow, the youngest running sequence of any model is preempted: its blocks go to the
// prefix cache and it waits, with its tokens, to be admitted again.
//
// A sequence is computed under the regime of all the tokens it has (Model.Regimes). When it outgrows
// one it drops its blocks and is computed again, in its place. Recurrent state is planned last in a
// step (Row.Runs), so that snapshots take only what memory nobody else needed.
//
// Models whose weights do not fit together take turns (residency.go). What waits for a parked model waits in its
// queue. Room for it is made by models without work, longest unused first, at once; else by those that have work, longest
// there first: they admit nobody until their running sequences have ended, which nothing cuts short. A model that has
// work stays for MinResident at least, and one that left its place sooner, because it had none, leaves what it lacked to
// who took it. So in one place there is one change a MinResident, and two more, at the most, and who has work stays for
// two of them at the most while others wait. What waited first when a model was loaded, or after it had nothing to do, is admitted before
// it leaves. Of the parked models that are waited for, the one with the nearest deadline that can be met comes next, but the
// one asked for first is passed maxPassed times at most; and room is made for one at a time. So a parked model comes after at most
// maxPassed others and each other one once, each of which takes at most two MinResident, the admission of one sequence, the
// rest of the answers of who makes room, and a load. A preempted sequence of a model that leaves waits like the rest of
// its queue, where it is among the first. The oldest sequence of all is thus brought, admitted and never preempted: it ends, and then the next.
//
// Facts that this rests on:
//
//   - Submit refuses a sequence that could not fit an empty pool.
//   - Age is arrival, whatever overtook it or preempted it, so preemption always ends at the youngest.
//   - Extend never fails for a sequence alone in the pool, up to the length that Submit accepted, unless
//     it holds what it found in the prefix cache: then it is admitted without.
//     So the oldest always advances and every sequence ends.
//   - finish is the one place that ends a sequence, gives its blocks back and makes its final event.
//   - Events are returned, never delivered, so nothing here waits for a client.
//
// A plan may be made before the one before it is committed (Limits.InFlight). A sequence's length
// counts the tokens being sampled; a row whose sequence ended or was preempted meanwhile is void,
// and Commit ignores what it yields. Steps must run in the order of their plans.
package sched
