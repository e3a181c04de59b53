package sampling

import "math"

// Plain are the scans as plain loops.
func Plain() Scans {
	return Scans{Max: largest, Find: find, SumExp: sumExp, CountGreater: countGreater, AtLeast: atLeast}
}

func largest(x []float32) (m float32, nan bool) {
	m = float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		} else if v != v {
			return m, true
		}
	}
	return m, false
}

func find(x []float32, v float32) int {
	for i := range x {
		if x[i] == v {
			return i
		}
	}
	return -1
}

func sumExp(x []float32, largest, scale float32) (sum float64) {
	for _, v := range x {
		sum += math.Exp(float64(v-largest) * float64(scale))
	}
	return sum
}

func countGreater(x []float32, v float32) (n int) {
	for i := range x {
		if x[i] > v {
			n++
		}
	}
	return n
}

func atLeast(ids []int32, x []float32, v float32) []int32 {
	for i := range x {
		if x[i] >= v {
			ids = append(ids, int32(i))
		}
	}
	return ids
}
