package manifest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/manifest"
)

// bomb is a document whose references stand for width^levels values.
func bomb(levels, width int, entry func(name string) string) string {
	var b strings.Builder
	b.WriteString("a0: &a0 {k: v}\n")
	for i := 1; i <= levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d %s\n", i, i, strings.Replace(entry(fmt.Sprintf("*a%d", i-1)), "WIDTH", strings.Repeat(fmt.Sprintf("*a%d,", i-1), width), 1))
	}
	return b.String()
}

// Hostile texts end with an error, soon and in little memory.
func TestHostileInputIsBounded(t *testing.T) {
	listOf := func(string) string { return "[WIDTH]" }
	merging := func(string) string { return "{<<: [WIDTH]}" }
	for name, text := range map[string]string{
		"references to references": bomb(30, 10, listOf),
		"merges of merges":         bomb(30, 10, merging),
		"nested brackets":          strings.Repeat("[", 100_000),
		"nested brackets, closed":  strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"nested braces":            strings.Repeat("{a: ", 100_000),
		"nested JSON":              strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000),
		"nested lists":             strings.Repeat("- ", 100_000) + "1",
		"nested quotes":            strings.Repeat("? ", 100_000),
		"9,000 levels":             "a: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000),
		"nothing but anchors":      strings.Repeat("&a ", 100_000),
		"nothing but tags":         strings.Repeat("!a ", 100_000),
		"too large":                strings.Repeat("#", manifest.MaxSource+1),
		"nothing but commas":       "[" + strings.Repeat("a,", manifest.MaxSource/2-2) + "a]",
		"nothing but lines":        strings.Repeat("- a\n", manifest.MaxSource/4),
		"nothing but separators":   strings.Repeat("---\n", manifest.MaxSource/4),
	} {
		t.Run(name, func(t *testing.T) {
			var set manifest.Set
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			require.Error(t, set.Add("in.yaml", []byte(text)))
			require.Less(t, time.Since(begin), 10*time.Second)
			require.Empty(t, set.Policies)
			var after runtime.MemStats
			runtime.ReadMemStats(&after)
			require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(600), "MiB")
		})
	}
}

func TestTooLargeIsTold(t *testing.T) {
	var set manifest.Set
	err := set.Add("big.yaml", make([]byte, 50_000_000))
	require.ErrorIs(t, err, manifest.ErrTooLarge)
	require.EqualError(t, err, "big.yaml: larger than 16 MiB; split it into several files")
	require.False(t, errors.Is(set.Add("in.yaml", []byte("a: [")), manifest.ErrTooLarge))
}

// A text of many small values is far larger as a tree than as a text.
func TestManyValuesAreRefusedUnread(t *testing.T) {
	for name, text := range map[string]string{
		"flat list":   "[" + strings.Repeat("a,", 8_000_000-1),
		"empty lists": "a: [" + strings.Repeat("[],", 5_000_000),
		"flat object": "{" + strings.Repeat("a: b,", 3_000_000),
		"lines":       strings.Repeat("- a\n", 4_000_000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var set manifest.Set
			require.Error(t, set.Add("in.yaml", []byte(text)))
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
		})
	}
}

func TestTenThousandPolicies(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		b.WriteString(strings.Replace(policyText, "name: p,", fmt.Sprintf("name: p%d,", i), 1) + "---\n")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	var set manifest.Set
	require.NoError(t, set.Add("in.yaml", []byte(b.String())))
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	require.Len(t, set.Policies, 10_000)
	t.Logf("%d bytes in %v, %d MB allocated", b.Len(), took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20)
	require.Less(t, took, 20*time.Second)
}
