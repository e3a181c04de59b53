package engine

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

func planned(name string, weights int64, layers, heads, dim, context int) planModel {
	return planModel{
		name: name, weightBytes: weights, dtype: kernels.F16, maxPosition: context, maxSeqs: 64,
		groups: []models.CacheGroup{{Layers: layers, Heads: heads, KDim: dim, VDim: dim}},
	}
}

// shapes: 2 KiB, 1.5 KiB, 22.5 KiB, 32 KiB and 200 KiB a token.
var planShapes = []planModel{
	planned("demo-tales", 3<<20, 4, 2, 64, 1024),
	planned("demo-bard", 3<<20, 3, 4, 32, 1024),
	planned("smollm2", 100<<20, 30, 3, 64, 2048),
	planned("wide", 800<<20, 16, 8, 64, 131072),
	planned("phi", 8<<30, 40, 10, 128, 16384),
	grouped("gemma", 7<<30, 131072,
		models.CacheGroup{Kind: models.SlidingWindow, Layers: 40, Heads: 8, KDim: 256, VDim: 256, Window: 1024},
		models.CacheGroup{Layers: 8, Heads: 1, KDim: 512, VDim: 512}),
	grouped("qwen3.5-9b", 5<<30, 262144,
		models.CacheGroup{Kind: models.Recurrent, Layers: 24, Heads: 32, KDim: 128, VDim: 128, ConvChannels: 8192, ConvColumns: 3},
		models.CacheGroup{Layers: 8, Heads: 4, KDim: 256, VDim: 256}),
}

func grouped(name string, weights int64, context int, groups ...models.CacheGroup) planModel {
	m := planned(name, weights, 1, 1, 1, context)
	m.groups = groups
	return m
}

func TestMemoryPlanKeepsItsPromises(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	refused := 0
	for range 3000 {
		var ms []planModel
		for _, m := range planShapes {
			if r.IntN(2) == 0 {
				m.dtype = []kernels.DType{kernels.F16, kernels.F8E4M3, kernels.I8}[r.IntN(3)]
				ms = append(ms, m)
			}
		}
		if len(ms) == 0 {
			continue
		}
		free := int64(1) << (24 + r.IntN(13))
		kv := int64(0)
		if r.IntN(2) == 0 {
			kv = int64(1) << (16 + r.IntN(20))
		}
		scratch := int64(r.IntN(200 << 20))
		p, err := planMemory(kernels.Info{MemoryBytes: free}, ms, 512, scratch, kv, 0)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "iB") {
				t.Errorf("a refusal without numbers: %v", err)
			}
			continue
		}
		if p.KVBytes <= 0 || p.ReserveBytes < 0 || p.WeightBytes+p.ScratchBytes+p.KVBytes+p.ReserveBytes != p.FreeBytes {
			t.Errorf("the parts do not make the whole: %+v", p)
		}
		if kv > 0 && p.KVBytes > kv || kv == 0 && p.KVBytes > defaultKVCap {
			t.Errorf("%d bytes of KV cache, %d asked for", p.KVBytes, kv)
		}
		if p.PageBytes > maxPageBytes || int64(p.Pages)*p.PageBytes != p.KVBytes {
			t.Errorf("%d pages of %d bytes", p.Pages, p.PageBytes)
		}
		for i, m := range p.Models {
			if m.BlockBytes*int64(m.BlocksPerPage) > p.PageBytes || m.BlocksPerPage < 1 {
				t.Errorf("%s: %d blocks of %d in a page of %d", m.Name, m.BlocksPerPage, m.BlockBytes, p.PageBytes)
			}
			for g, l := range m.cut.layouts {
				if l.Layers > 0 && (l.BlockBytes != m.BlockBytes || l.TokenBytes()*int64(l.BlockTokens) > m.BlockBytes || l.BlockTokens < 16 || l.BlockTokens%16 != 0) {
					t.Errorf("%s: group %d: %d tokens of %d bytes in a block of %d", m.Name, g, l.BlockTokens, l.TokenBytes(), m.BlockBytes)
				}
			}
			if s := m.cut.state; s != nil {
				if s.PageBytes != p.PageBytes || s.UnitsPerPage() < 1 {
					t.Errorf("%s: %+v in pages of %d", m.Name, s, p.PageBytes)
				}
				if lost := 1 - float64(s.StateBytes())/float64(int64(s.StatePages())*s.PageBytes); lost > 0.2 && p.KVBytes > 2<<30 {
					t.Errorf("%s: a state loses %.0f %% of %d pages of %d", m.Name, lost*100, s.StatePages(), p.PageBytes)
				}
			}
			if m.MaxModelLen < minCacheTokens || m.MaxModelLen > ms[i].maxPosition || m.MaxModelLen > m.CacheTokens {
				t.Errorf("%s: context %d of %d, cache %d", m.Name, m.MaxModelLen, ms[i].maxPosition, m.CacheTokens)
			}
			lost := float64(p.PageBytes%m.BlockBytes) / float64(p.PageBytes)
			if p.KVBytes > 2<<30 && lost > 0.1 {
				t.Errorf("%s loses %.0f %% of a page of %d", m.Name, lost*100, p.PageBytes)
			}
		}
		if p.KVBytes > 1<<30 && p.Pages < minPages && p.PageBytes > largestBlock(p) {
			t.Errorf("%d pages in %d bytes", p.Pages, p.KVBytes)
		}
	}
	if refused == 0 || refused > 2500 {
		t.Errorf("%d of 3000 refused", refused)
	}
}

// largestBlock is the smallest page there could be.
func largestBlock(p MemoryPlan) int64 {
	var cuts []cut
	for _, m := range p.Models {
		cuts = append(cuts, m.cut)
	}
	return align(smallestPage(cuts), pageStep)
}

func TestMemoryRefusalSaysWhatWouldFit(t *testing.T) {
	ms := planShapes[4:5]
	_, err := planMemory(kernels.Info{MemoryBytes: 9 << 30}, ms, 512, 100<<20, 2<<30, 0)
	if err == nil || !strings.Contains(err.Error(), "2.00 GiB") || !strings.Contains(err.Error(), "would fit") {
		t.Errorf("%v", err)
	}
	_, err = planMemory(kernels.Info{MemoryBytes: 4 << 30}, ms, 512, 100<<20, 0, 0)
	if err == nil || !strings.Contains(err.Error(), "phi 8.00 GiB") {
		t.Errorf("%v", err)
	}
	long := planShapes[3]
	long.maxModelLen = 131072
	_, err = planMemory(kernels.Info{MemoryBytes: 8 << 30}, []planModel{long}, 512, 1<<20, 1<<30, 0)
	if err == nil || !strings.Contains(err.Error(), "131072") {
		t.Errorf("a context that the pool cannot hold: %v", err)
	}
}

// What a refusal says is needed is enough, and so is every pool above it.
func TestRefusedPoolsAreTooSmall(t *testing.T) {
	needed := regexp.MustCompile(`need at least ([0-9.]+) (KiB|MiB|GiB)`)
	units := map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	tiny := grouped("tiny", 2<<20, 1024, // a state of 240 KiB: nearly a whole page
		models.CacheGroup{Kind: models.Recurrent, Layers: 3, Heads: 4, KDim: 64, VDim: 64, ConvChannels: 512, ConvColumns: 3},
		models.CacheGroup{Layers: 1, Heads: 2, KDim: 64, VDim: 64})
	sets := [][]planModel{{tiny}, {tiny, planShapes[0]}, planShapes[:3], planShapes[5:]}
	for _, m := range planShapes {
		sets = append(sets, []planModel{m})
	}
	for _, ms := range sets {
		_, err := planMemory(kernels.Info{MemoryBytes: 64 << 30}, ms, 512, 1<<20, 1<<10, 0)
		found := needed.FindStringSubmatch(fmt.Sprint(err))
		if found == nil {
			t.Errorf("%s: %v", ms[0].name, err)
			continue
		}
		number, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		least := int64(number * units[found[2]])
		for kv := least; kv < 3*least; kv += least/97 + 1 {
			if _, err := planMemory(kernels.Info{MemoryBytes: 64 << 30}, ms, 512, 1<<20, kv, 0); err != nil {
				t.Errorf("%s: %d bytes, %q were said to do: %v", ms[0].name, kv, found[0], err)
				break
			}
		}
		if _, err := planMemory(kernels.Info{MemoryBytes: 64 << 30}, ms, 512, 1<<20, least*95/100, 0); err == nil {
			t.Errorf("%s: less than %q does, too", ms[0].name, found[0])
		}
	}
}

func TestDefaultCacheLeavesALaptopUsable(t *testing.T) {
	p, err := planMemory(kernels.Info{MemoryBytes: 8 << 30}, planShapes[:2], 512, 10<<20, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	// 64 sequences of 1,024 tokens of both demo models are 224 MiB
	if p.KVBytes > 225<<20 || p.KVBytes < 215<<20 {
		t.Errorf("the demo models can use 224 MiB of cache, the plan has %d", p.KVBytes)
	}
	if p.Pages < minPages {
		t.Errorf("%d pages", p.Pages)
	}
}

// With memory to spare, one sequence alone gets the context that was asked for, whatever its length
// in blocks and pages.
func TestDefaultCacheHoldsTheContext(t *testing.T) {
	for _, m := range planShapes {
		for _, n := range []int{1, 16, 17, 99, 896, 1000, 0} {
			m.maxModelLen, m.maxSeqs = n, 1
			p, err := planMemory(kernels.Info{MemoryBytes: 64 << 30}, []planModel{m}, 512, 1<<20, 0, 0)
			if err != nil {
				t.Errorf("%s, context %d: %v", m.name, n, err)
				continue
			}
			if p.Models[0].MaxModelLen != m.context() && p.KVBytes < defaultKVCap-p.PageBytes {
				t.Errorf("%s: context %d of %d with %d pages of %d", m.name, p.Models[0].MaxModelLen, m.context(), p.Pages, p.PageBytes)
			}
		}
	}
}
