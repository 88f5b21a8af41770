package cel

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
)

// Feature is a group of CEL operations of which an engine runs all or none.
type Feature string

// The features that the vocabulary of docs/cel.md has.
const (
	FeatureLogic         Feature = "&& || ! ?:"
	FeatureComparison    Feature = "== != < <= > >="
	FeatureMembership    Feature = "in, x[y]"
	FeatureSize          Feature = "size()"
	FeatureSearch        Feature = "contains() startsWith() endsWith()"
	FeatureMatches       Feature = "matches()"
	FeatureArithmetic    Feature = "+ - * / % of numbers, times and durations"
	FeatureConcatenation Feature = "+ of strings and lists"
	FeatureConversion    Feature = "int() uint() double() bool() timestamp() duration()"
	FeatureToString      Feature = "string()"
	FeatureTimeParts     Feature = "getHours() and the other parts of a time"
	FeatureMilliseconds  Feature = "getMilliseconds()"
	FeatureTimeZone      Feature = "getHours('zone') and the other parts of a time in a time zone"
	FeatureStrings       Feature = "lowerAscii() upperAscii() split() substring() trim() charAt() indexOf() lastIndexOf()"
	FeatureComprehension Feature = "all() exists() exists_one() filter() map()"
	FeaturePresence      Feature = "has()"
)

// Features lists all of them in the order of the documentation.
func Features() []Feature {
	return []Feature{FeatureLogic, FeatureComparison, FeatureMembership, FeatureSize, FeatureSearch, FeatureMatches,
		FeatureArithmetic, FeatureConcatenation, FeatureConversion, FeatureToString, FeatureTimeParts, FeatureMilliseconds,
		FeatureTimeZone, FeatureStrings, FeatureComprehension, FeaturePresence}
}

// features returns what a checked expression uses, sorted. An operation that is in no group stands for itself, so that an
// engine which knows groups only does not run it.
func features(checked *cel.Ast) []Feature {
	native := checked.NativeRep()
	found := map[Feature]bool{}
	for _, reference := range native.ReferenceMap() {
		for _, overload := range reference.OverloadIDs {
			found[featureOf(overload)] = true
		}
	}
	ast.PreOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.ComprehensionKind:
			found[FeatureComprehension] = true
		case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
			found[FeaturePresence] = true
		}
	}))
	return slices.Sorted(maps.Keys(found))
}

// byOverload groups the overloads that have no common form.
var byOverload = map[string]Feature{
	overloads.LogicalAnd: FeatureLogic, overloads.LogicalOr: FeatureLogic, overloads.LogicalNot: FeatureLogic,
	overloads.Conditional: FeatureLogic, overloads.Equals: FeatureComparison, overloads.NotEquals: FeatureComparison,
	overloads.NotStrictlyFalse: FeatureComprehension,
	overloads.InList:           FeatureMembership, overloads.InMap: FeatureMembership,
	overloads.IndexList: FeatureMembership, overloads.IndexMap: FeatureMembership,
	overloads.ContainsString: FeatureSearch, overloads.StartsWithString: FeatureSearch, overloads.EndsWithString: FeatureSearch,
	overloads.Matches: FeatureMatches, overloads.MatchesString: FeatureMatches,
	overloads.AddString: FeatureConcatenation, overloads.AddList: FeatureConcatenation, overloads.AddBytes: FeatureConcatenation,
}

// byPrefix groups the others; the first that fits counts.
var byPrefix = []struct {
	prefix  string
	feature Feature
}{
	{"less_", FeatureComparison}, {"greater_", FeatureComparison},
	{"size_", FeatureSize}, {"string_size", FeatureSize}, {"list_size", FeatureSize}, {"map_size", FeatureSize}, {"bytes_size", FeatureSize},
	{"add_", FeatureArithmetic}, {"subtract_", FeatureArithmetic}, {"multiply_", FeatureArithmetic}, {"divide_", FeatureArithmetic},
	{"modulo_", FeatureArithmetic}, {"negate_", FeatureArithmetic},
	{"string_char_at", FeatureStrings}, {"string_index_of", FeatureStrings}, {"string_last_index_of", FeatureStrings},
	{"string_lower_ascii", FeatureStrings}, {"string_upper_ascii", FeatureStrings}, {"string_split", FeatureStrings},
	{"string_substring", FeatureStrings}, {"string_trim", FeatureStrings},
}

func featureOf(overload string) Feature {
	if f, ok := byOverload[overload]; ok {
		return f
	}
	for _, group := range byPrefix {
		if strings.HasPrefix(overload, group.prefix) {
			return group.feature
		}
	}
	from, to, conversion := strings.Cut(overload, "_to_")
	switch {
	case !conversion:
		return Feature(overload)
	case from == "timestamp" && strings.HasSuffix(to, "_tz"):
		return FeatureTimeZone
	case to == "milliseconds":
		return FeatureMilliseconds
	case slices.Contains([]string{"string", "int64", "uint64", "double", "bool", "timestamp", "duration", "bytes"}, to):
		if to == "string" {
			return FeatureToString
		}
		return FeatureConversion
	case from == "timestamp" || from == "duration":
		return FeatureTimeParts
	}
	return Feature(overload)
}
