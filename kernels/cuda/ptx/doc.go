// Package ptx executes NVIDIA PTX on the CPU, checks it and counts what decides its speed.
//
// It takes the PTX (ISA 7.x, target sm_80) that nvcc 11.8 and 12.x write, without textures, calls
// through pointers and recursion. Parse reads the text, Load gives a module's variables memory,
// Module.Kernel compiles one entry to a register machine, and Kernel.Launch runs a grid. A warp is
// 32 lanes under one mask; an instruction works on a register of all 32 lanes at once, so the cost
// of finding it is paid once a warp. Warps split at divergent branches and join at the immediate
// post-dominator; the parts take turns, so a lane may wait for another one of its warp.
//
// While it runs it reports what hardware would keep quiet about: access outside an allocation,
// misaligned access, reads of memory nobody wrote, races within and between blocks (also with a
// cp.async in flight), divergent barriers and deadlock. And it counts sectors, bytes, bank
// conflicts and instructions.
//
// The invariant: what it does not know it refuses, naming the line. Every directive, instruction,
// modifier and operand is either understood or an *Error; nothing is skipped and nothing guessed.
//
// Three readings of what PTX leaves open: a barrier for the whole block that some threads ended
// without reaching is reported, though cards since sm_70 let it pass; lanes of a warp need
// bar.warp.sync between them as warps need a barrier; and a write of the value that memory holds
// already is not a race with other writes of it.
//
// It does not time anything and knows no card: see kernels/KERNELS.md for predictions.
package ptx
