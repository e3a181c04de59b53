package checkpoint

import "strings"

// multimodal begin the names, after an optional "model.", of all that turns images and sound into
// embeddings: towers, embedders and projectors.
var multimodal = []string{
	"visual.", "vision_tower.", "vision_model.", "vision_embedder.", "embed_vision.",
	"audio_tower.", "embed_audio.", "multi_modal_projector.",
}

// SkipMultimodal marks the tensors of image and audio encoders as left unused on purpose, and
// returns how many they are. A text model asks for it: without such inputs none of them counts.
func (c *Checkpoint) SkipMultimodal() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.order {
		name := strings.TrimPrefix(t.name, "model.")
		for _, prefix := range multimodal {
			if !t.used && strings.HasPrefix(name, prefix) {
				t.used = true
				n++
			}
		}
	}
	return n
}
