package quantize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels/quant"
)

// smallest is the number of outputs from which a weight is quantised. Fewer are gates and the
// like (Qwen3.5's in_proj_a and in_proj_b, routers of experts): they take no memory, and kernels want 64.
const smallest = 64

// keepsFloat says why the weight of a module is not quantised; "" when it is. A scheme of no bits quantises nothing. Names are Hugging Face's or those of a GGUF file.
func keepsFloat(module string, n, k int, s quant.Scheme) string {
	parts := strings.Split(module, ".")
	last := parts[len(parts)-1]
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(last, w) })
	}
	switch {
	case s.Bits == 0:
		return "nothing is quantised"
	case isHead(module):
		return "the output layer"
	case isEmbedding(module):
		return "an embedding"
	case slices.ContainsFunc(parts, func(p string) bool {
		return strings.HasPrefix(p, "visual") || strings.HasPrefix(p, "vision") || strings.HasPrefix(p, "audio") || strings.HasPrefix(p, "multi_modal")
	}):
		return "of the vision or audio part"
	case slices.ContainsFunc(parts, func(p string) bool { return p == "mtp" || strings.HasPrefix(p, "mtp_") }):
		return "of the prediction head"
	case has("conv"):
		return "a convolution"
	case has("norm"):
		return "a norm"
	case has("router") || last == "gate":
		return "a router"
	case n < smallest:
		return fmt.Sprintf("%d outputs", n)
	case k%s.Group != 0:
		return fmt.Sprintf("%d inputs are not whole groups of %d", k, s.Group)
	}
	return ""
}

func isHead(module string) bool {
	last := module[strings.LastIndexByte(module, '.')+1:]
	return last == "lm_head" || module == "output"
}

func isEmbedding(module string) bool {
	last := module[strings.LastIndexByte(module, '.')+1:]
	return strings.Contains(last, "embed") || strings.HasSuffix(last, "token_embd") || last == "wte" || last == "wpe"
}
