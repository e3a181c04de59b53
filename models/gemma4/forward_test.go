package gemma4_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/models/modeltest"
)

func TestEqualsReferenceOnRef(t *testing.T) { modeltest.Run(t, onRef, "gemma4") }
