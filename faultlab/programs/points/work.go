// Goroutines that compute, allocate and send each other results, for ever; each round must have the
// result of the first one. Called from C, so that what is loaded before the program is there first.
package main

import "C"

import "sort"

func part(seed uint64, out chan<- uint64) {
	words := make([]uint64, 0, 64)
	counts := map[uint64]int{}
	for i := 0; i < 20000; i++ {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		words = append(words, seed)
		counts[seed%997]++
	}
	sort.Slice(words, func(i, j int) bool { return words[i] < words[j] })
	out <- words[len(words)/2] + uint64(counts[5])
}

func round() uint64 {
	const parts = 4
	out := make(chan uint64)
	for i := uint64(1); i <= parts; i++ {
		go part(i, out)
	}
	var sum uint64
	for i := 0; i < parts; i++ {
		sum += <-out
	}
	return sum
}

//export Work
func Work() {
	first := round()
	for round() == first {
	}
}

func main() {}
