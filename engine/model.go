package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/chat"
	"github.com/openinfer-go/openinfer/models/tokenizer"
	"github.com/openinfer-go/openinfer/sched"
)

// model is one served model. What stands before count is set by Load and, but for ready and impl, constant after.
type model struct {
	index int
	spec  ModelSpec
	ready atomic.Bool

	info      ModelInfo
	impl      models.Model // whose weights come and go (see park.go); another one after each load
	stamp     stamp
	loadTime  time.Duration // of the weights
	tok       vocabulary
	chat      *chat.Template
	chatErr   error          // why chat is nil
	marks     map[int32]bool // added tokens, not special, that give a chat its structure
	ends      []int32        // sorted
	never     []int32        // ids that the checkpoint wants never to be drawn
	vocab     int            // ids that exist; rows of the output layer beyond are padding
	odd       []string       // what the checkpoint says and contradicts
	cut       cut
	padded    int                 // rows of the output layer
	regimes   []int               // models.Shape.Regimes
	simulated *simulation         // of a device that computes nothing; nil: the device draws tokens
	prior     []sched.Observation // of steps' times
	// maxPosition is the context that the checkpoint states.
	maxPosition int

	grammarOnce   sync.Once
	grammarTokens *grammar.Vocabulary // by grammarVocabulary
	forced        forcedTexts

	count counters

	// Engine.mu guards the rest.
	resident  bool          // impl's weights are on the device
	keepAlive time.Duration // as the scheduler knows it
	loadErr   error         // of the last try to bring it
	loadTries int
	loading   bool // LoadModel asked for it and UnloadModel has not taken it back
	unloading bool // the other way round
}

// vocabulary is what the engine needs of a tokenizer.
type vocabulary interface {
	Encode(text string, o tokenizer.Options) []int32
	EncodeSegments(segs []tokenizer.Segment, o tokenizer.Options) []int32
	Decode(ids []int32, skipSpecial bool) string
	TokenBytes(id int32) []byte
	IsSpecial(id int32) bool
	Size() int
}

func (m *model) name() string { return m.spec.Name }

// takeShape notes what memory and steps depend on.
func (m *model) takeShape() models.Shape {
	s := m.impl.Shape()
	m.maxPosition, m.padded, m.regimes = s.MaxPosition, s.Vocab, s.Regimes
	return s
}

func (m *model) isEnd(id int32) bool {
	_, found := slices.BinarySearch(m.ends, id)
	return found
}

// snapshotMarks are the places of a prompt that other prompts are likely to share with it and go on
// otherwise: the end of its first turn, which is the system prompt where there is one, and of its
// last ones. Nil for a model without a recurrent state, which can go on from anywhere.
func (m *model) snapshotMarks(prompt []int32) []int {
	const last = 2
	if m.cut.state == nil {
		return nil
	}
	var marks []int
	for i, id := range prompt {
		if m.isEnd(id) {
			marks = append(marks, i+1)
		}
	}
	if len(marks) > 1+last {
		marks = append(marks[:1], marks[len(marks)-last:]...)
	}
	return marks
}

// recomputing is what it costs to compute a byte of cache again, in seconds: of a long prompt by what the device is
// said to take, or by operations where nothing is said. Only how models compare counts.
func (m *model) recomputing(tokenBytes int64) float64 {
	perToken := 2e-12 * float64(m.impl.Shape().Parameters)
	tokens := 0
	for _, o := range m.prior {
		if o.Work.Context == 0 && o.Work.Tokens > tokens {
			tokens, perToken = o.Work.Tokens, o.Seconds/float64(o.Work.Tokens)
		}
	}
	if perToken <= 0 || tokenBytes <= 0 {
		return 0 // as good as any
	}
	return perToken / float64(tokenBytes)
}

func (m *model) describe() ModelInfo {
	if m.ready.Load() {
		info := m.info
		info.Ready = true
		return info
	}
	return ModelInfo{Name: m.info.Name, Path: m.info.Path, Created: m.info.Created}
}

// Scratch holds a tile of logits and then what the model carves for itself.

func (m *model) logitsBytes() int64 { return align(int64(headTile)*int64(m.padded)*4, 64) }

func (m *model) scratchBytes(tokens int) int64 {
	return m.logitsBytes() + align(m.impl.ScratchBytes(tokens, headTile), 64)
}

func (m *model) logits(a arena) kernels.Tensor {
	return kernels.Tensor{
		Buf: a.scratch.Slice(0, int64(headTile)*int64(m.padded)*4), DType: kernels.F32,
		Rows: headTile, Cols: m.padded, Stride: m.padded,
	}
}

func (m *model) modelScratch(a arena) kernels.Buffer {
	return a.scratch.Slice(m.logitsBytes(), a.scratch.Len-m.logitsBytes())
}
