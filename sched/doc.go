// Package sched decides which rows run next: one Scheduler sees every model's waiting and running
// sequences and all cache memory of a device.
//
// It is pure. Time is an argument; there is no clock, log, device, lock or goroutine, and the same
// calls give the same plans. The step loop owns it: Submit what arrived, Cancel what is not wanted
// any more, Plan, execute, Commit, deliver Events.
//
// A step runs one model. A model of step times (predict.go), learned online for each, says how long a step takes, and a
// sequence's SLA when its next token is due (deadline.go): so each model has an instant at which its next step has to
// begin. The model for which that comes first steps next, within fairness (byUrgency): models with best-effort work, which
// would take any time, differ by Limits.Lag and a step at most, by weight. What cannot meet its SLA any more is late: it is
// best effort from then on, and delays nobody who can.
//
// Within a step, every sequence that decodes has a row, one token each. Prompts get as many tokens as end before
// whatever is due meanwhile, on any model (chunk.go), and no fewer than minChunk. Those with a deadline come first, the
// most urgent in full; the others share half at least, each an eighth or all it needs, so a short prompt passes by a long
// one and the long one goes on; the oldest gets an eighth in any case.
//
// What waits is ordered by priority, by whether its SLA can be met, between keys by what they were given, by deadline and
// by age (order.go); one in fairTurn admissions is the oldest's. Submit refuses what is predicted to be late, or to make
// late what was accepted (capacity.go).
//
// Memory is taken optimistically. To be admitted a sequence needs blocks for all tokens that it
// has, and more are left for what runs to grow, if it is known how long answers are. One that does not fit is overtaken a
// bounded number of times and then nobody younger is admitted anywhere until it fits. When a running sequence
// cannot grow, the youngest running sequence of any model is preempted: its blocks go to the
// prefix cache and it waits, with its tokens, to be admitted again.
//
// A sequence is computed under the regime of all the tokens it has (Model.Regimes). When it outgrows
// one it drops its blocks and is computed again, in its place. Recurrent state is planned last in a
// step (Row.Runs), so that snapshots take only what memory nobody else needed.
//
// Models whose weights do not fit together take turns (residency.go). What waits for a parked model waits in its
// queue. Room for it is made by models without work, longest unused first, at once (or shortly after, when it is not long
// since they were loaded: freeAt); else by those that have work, longest there first: they admit nobody until their running sequences have ended, which nothing cuts short. A model that has
// work stays for MinResident at least, and one that left its place sooner, because it had none, leaves what it lacked to
// who took it. One that Load, or a request that was refused, called for stays leastResident, whatever its idle time. So in one place there is one change a MinResident, and two more, at the most, and who has work stays for
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
//   - Of fairTurn admissions in a row of a model, one is of its oldest waiting sequence that may be admitted (that has no other
//     one to wait for and is not the third of the long ones), or memory refused that: it is passed MaxOvertakes times more.
//   - finish is the one place that ends a sequence, gives its blocks back and makes its final event.
//   - Events are returned, never delivered, so nothing here waits for a client.
//
// So nobody waits for ever, whatever arrives. Take a sequence with n older ones alive, each of at most L tokens with its
// prompt, in a model of M slots beside models of W times its weight. Nobody who comes after it delays it but by being
// admitted before: at most fairTurn*(n+1) of its model, and MaxOvertakes of any when memory refuses it. Each of those, and
// of the older ones, and of the M that run, takes at most L steps of its model once it is the oldest that runs, because the
// oldest has a token in each, but for steps of nothing but tokens that press. So it is admitted and, with L more, ends within (n + fairTurn*(n+1) + MaxOvertakes + M + 1)*L steps
// of each of the models, those not counted in which weights move. And between two steps of a model with best-effort work the
// others have at most W*(Limits.Lag + the longest step) of device time, and a step each of tokens that press, which take no more
// than their share. (A late sequence beside streams of its model goes along with these, a step each TPOT.)
//
// A plan may be made before the one before it is committed (Limits.InFlight). A sequence's length
// counts the tokens being sampled; a row whose sequence ended or was preempted meanwhile is void,
// and Commit ignores what it yields. Steps must run in the order of their plans.
package sched
