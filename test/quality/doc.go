// Package quality measures what int8 activations cost: the mean KL divergence of a device's next-token
// distributions from those in float32, beside llama.cpp's over the same tokens.
package quality
