package regex

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// ProgramSize returns at least as many instructions as RE2's C++ compiler makes of an expression. Unlike Go's it works on
// bytes, so a character beyond ASCII, and a class that holds some, take several. Envoy refuses to run an expression past a
// size. The error is Size's.
func ProgramSize(expr string) (int, error) {
	if _, err := Size(expr); err != nil {
		return 0, err
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	size := searchSize
	for _, inst := range program.Inst {
		size += byteInstructions(inst)
	}
	return size, nil
}

// searchSize is what RE2 puts before an expression to look for it anywhere in a value.
const searchSize = 6

// classSize is what a range with characters beyond ASCII takes at most: for each of the lengths 2 to 4 of their UTF-8 form
// a first, a middle and a last part.
const classSize = 24

func byteInstructions(inst syntax.Inst) int {
	switch inst.Op {
	case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return classSize
	case syntax.InstRune, syntax.InstRune1:
	case syntax.InstAlt, syntax.InstAltMatch, syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstMatch, syntax.InstFail, syntax.InstNop:
		return 1
	}
	if len(inst.Rune) == 1 {
		switch folds := syntax.Flags(inst.Arg)&syntax.FoldCase != 0; {
		case folds && inst.Rune[0] >= utf8.RuneSelf:
			return classSize
		case folds && strings.ContainsRune("kKsS", inst.Rune[0]):
			return 1 + utf8.UTFMax // the Kelvin sign and the long s fold to them
		}
		return utf8.RuneLen(inst.Rune[0])
	}
	size := 0
	for i := 0; i+1 < len(inst.Rune); i += 2 {
		if size++; inst.Rune[i+1] >= utf8.RuneSelf {
			size += classSize
		}
	}
	return size
}
