// Package quantize makes INT4 checkpoints of others, and INT4 weights of float ones while they are loaded.
//
// Run writes a folder in compressed-tensors' pack-quantized. It works from the list of what the
// checkpoint holds, so it knows no architecture: weights of linear layers become codes, by the rule that keepsFloat states,
// and everything else is copied. With calibration text it runs the model's own forward pass, once, on a device that is
// wrapped: just before a weight is multiplied for the first time its inputs are known, it is quantised with them
// (kernels/quant's GPTQ), written, and multiplied in its quantised form. So every layer sees what the
// quantised layers before it make, the pass needs no second one, and no more than one weight is on the
// device at a time. OnLoad wraps a device whose Load quantises what it is given.
//
// What is known of bits and errors is kernels/quant's; of files and names models/checkpoint's.
//
// Invariant: a folder that Open takes is complete. All is written to a folder beside it, with a file in it
// that makes Open refuse it, and renamed at the end. A run that finds such a folder of the same plan keeps the weights in
// it whose checksums hold.
package quantize
