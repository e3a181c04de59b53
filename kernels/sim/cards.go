package sim

// Memory, bandwidth and dense tensor rates are those of the vendor's documents named beside each card. Rates of
// GeForce cards differ by the type of the sums: fp32 runs at half of fp16. Memory is the card's nominal size in
// GiB, of the H200 what its driver reports of 141 GB.
//
// Shares are fitted to the one table of measurements at hand: Qwen3.8-27B in INT4 on an RTX 3090 with an unlocked
// tensor rate under vLLM 0.32 (engine's TestPublishedSpeeds compares). There a token of a single stream takes 20.7 ms,
// of which 14.1 GB of weights and state at 78 % of 936 GB/s are 19.4 and launches the rest (the page itself counts
// "above 73 %" with them); a prompt of 8,192 tokens runs at 2,163 tokens a second, 105 of 142 TFLOP/s over all operators and
// so more within products; and from 8,192 to 57,344 tokens a token costs 139 us more for 9.7 GFLOP of attention,
// half of the rate. Nothing as complete was at hand for other cards: they are taken to reach the same shares. For the
// RTX 5090 one engine's own figure is 81 % of the bandwidth.
const (
	bandwidthShare = 0.78
	productShare   = 0.83
	attentionShare = 0.50

	// launch is the gap between two dependent kernels of a captured graph, with filling and draining the card.
	launch = 2e-6

	// Copies between pinned host memory and the card reach about this on x16 slots.
	pcie4 = 25e9
	pcie5 = 50e9
)

const (
	ampere    = "NVIDIA Ampere GA102 GPU Architecture white paper v2"
	ada       = "NVIDIA Ada GPU Architecture white paper v2"
	blackwell = "NVIDIA RTX Blackwell GPU Architecture white paper v1"
)

var cards = []Spec{
	card("rtx3090", "NVIDIA RTX 3090", ampere, 24, 936, 71, 142, 284, pcie4),
	card("rtx3090-unlocked", "NVIDIA RTX 3090 with unlocked tensor rate", ampere+"; fp32 sums at the rate of fp16 sums", 24, 936, 142, 142, 284, pcie4),
	card("rtx3090ti", "NVIDIA RTX 3090 Ti", ampere, 24, 1008, 80, 160, 320, pcie4),
	card("rtx4090", "NVIDIA RTX 4090", ada, 24, 1008, 165.2, 330.3, 660.6, pcie4),
	card("rtx5090", "NVIDIA RTX 5090", blackwell, 32, 1792, 209.5, 419, 838, pcie5),
	card("a6000", "NVIDIA RTX A6000", ampere, 48, 768, 154.8, 154.8, 309.7, pcie4),
	card("l40s", "NVIDIA L40S", "NVIDIA L40S data sheet, without sparsity", 48, 864, 362, 362, 733, pcie4),
	card("a10", "NVIDIA A10", "NVIDIA A10 data sheet", 24, 600, 125, 125, 250, pcie4),
	card("l4", "NVIDIA L4", "NVIDIA L4 data sheet, half of the rates with sparsity", 24, 300, 121, 121, 242, pcie4),
	card("a100-40g", "NVIDIA A100 40GB", "NVIDIA A100 Tensor Core GPU data sheet", 40, 1555, 312, 312, 624, pcie4),
	card("a100-80g", "NVIDIA A100 80GB SXM", "NVIDIA A100 Tensor Core GPU data sheet", 80, 2039, 312, 312, 624, pcie4),
	card("h100", "NVIDIA H100 SXM", "NVIDIA H100 Tensor Core GPU data sheet, half of the rates with sparsity", 80, 3350, 989, 989, 1979, pcie5),
	card("h200", "NVIDIA H200 SXM", "NVIDIA H200 Tensor Core GPU data sheet, half of the rates with sparsity", 140, 4800, 989, 989, 1979, pcie5),
}

// card has memory in GiB, bandwidth in GB/s and rates in TFLOP/s.
func card(name, description, source string, gib int64, bandwidth, acc32, acc16, int8 float64, host float64) Spec {
	return Spec{
		Name: name, Description: description, Source: source,
		MemoryBytes: gib << 30, Bandwidth: bandwidth * 1e9,
		Rates: [arithmetics]float64{acc32 * 1e12, acc16 * 1e12, int8 * 1e12}, Coded: Acc32,
		BandwidthShare: bandwidthShare, ProductShare: productShare, AttentionShare: attentionShare,
		HostBandwidth: host, Launch: launch,
	}
}
